"""Who asks: the holder of a token, or the bridge's own user by the kernel's word."""
