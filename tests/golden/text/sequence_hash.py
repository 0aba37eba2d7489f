"""SHA-256 over sequences of numbers and texts, as SequenceHash of golden.h."""
import hashlib
import struct


class SequenceHash:
    def __init__(self):
        self.sha = hashlib.sha256()

    def sequence(self, numbers):
        """The length and the numbers, all little-endian int32."""
        self.sha.update(struct.pack(f"<{len(numbers) + 1}i", len(numbers), *numbers))

    def text(self, text):
        """The number of bytes as little-endian int32, and the bytes in UTF-8."""
        data = text.encode()
        self.sha.update(struct.pack("<i", len(data)) + data)

    def hex(self):
        return self.sha.hexdigest()
