// Package tlspump lets a *tls.Conn be read inside a callback of syscall.RawConn.Read, where
// nothing may block, and lets its owner send several records with one system call.
//
//	tls.Conn ─► Conn ─┬─► outer: reads and writes with ordinary calls
//	                  └─► socket: within ReadNow, and to send what was collected
//
// A Conn is the net.Conn below a *tls.Conn. Outside of ReadNow it passes reads on, so the handshake
// and everything else that reads with ordinary calls works as usual, deadlines included. Within
// ReadNow it receives without blocking. If nothing has arrived, it returns a temporary error, after
// which crypto/tls can continue where it stopped.
//
// The engines use a Pump: a plain connection, or a *tls.Conn above a Conn.
//
// # Reading
//
// The socket is not signalled again for bytes that were received already, and crypto/tls may
// hold several records. So the owner calls ReadNow, within one callback, until more is false.
// Usually that takes one call and one system call: a Conn counts the records that pass, and knows
// that nothing is left once a single record was read whole.
//
// # Writing
//
// Between Hold and Unhold what crypto/tls sends is collected, and SendNow or Send sends it.
// ReadNow collects too, because crypto/tls writes alerts, and replies to a KeyUpdate, from within
// Read. The owner sends them afterwards, and decides how long the client may take to accept them.
package tlspump
