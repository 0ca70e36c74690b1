"""What a person writes in a file or a flag, read strictly: every mistake is one line that says where."""
