"""What networks are trained for, one file each."""
