package edge

import "time"

// waitForMore waits a moment: bytes that stay in the socket keep it readable.
func waitForMore() { time.Sleep(10 * time.Millisecond) }
