"""Where commands run: on this machine, in namespaces, in a container, on another host."""
