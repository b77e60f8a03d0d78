"""Memories of a person in Chinese, and questions about them, written for this purpose."""
