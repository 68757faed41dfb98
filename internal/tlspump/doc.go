// Package tlspump lets a *tls.Conn be read inside a callback of syscall.RawConn.Read, where
// nothing may block, and lets its owner send several records with one system call.
//
//	tls.Conn ─► Conn ─┬─► outer: reads and writes with ordinary calls
//	                  └─► socket: within ReadNow, and to send what was collected
//
// A Conn stands below the *tls.Conn. Outside of ReadNow it passes reads on, so the handshake
// and everything else that reads with ordinary calls works as without it, deadlines included.
// Within ReadNow it receives without blocking, and reports an error that is temporary when
// nothing is there, after which crypto/tls goes on where it was.
//
// A Pump is what an engine uses: a plain connection, or a *tls.Conn above a Conn.
//
// # Reading
//
// The socket is not signalled again for bytes that were received already, and crypto/tls may
// hold several records. So the owner calls ReadNow, within one callback, until more is false.
// Usually that is one call and one system call: a Conn counts the records that pass, and knows
// that a single one that was read whole leaves nothing behind.
//
// # Writing
//
// Between Hold and Unhold what crypto/tls sends is collected, and SendNow or Send sends it.
// ReadNow collects too, because the reply to a KeyUpdate, and an alert, are written from within
// Read: the owner sends them afterwards, with its own bound on the time that a client may take.
package tlspump
