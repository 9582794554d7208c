"""One session: its log's owner, its mailbox, and the loop that decides and performs the next step."""
