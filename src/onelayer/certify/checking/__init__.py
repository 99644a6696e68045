"""Parts of the independent checker, in ball arithmetic (python-flint); the door is onelayer.certify.check."""
