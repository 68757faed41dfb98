//go:build unix

package edge

// waitForMore does nothing: bytes that stay in the socket do not make it readable again, but
// the arrival of more does.
func waitForMore() {}
