"""One Fairlead on one machine: its home folder, its processes, and how programs there reach it."""
