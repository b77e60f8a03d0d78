"""The checksums that libraries write into their files and never look at again."""
