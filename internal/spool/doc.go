// Package spool keeps records in files until they can be stored elsewhere. A Queue is a FIFO queue of
// frames, in segments of a bounded size, which survives the end of the process.
//
//	Append ─► audit-…3   audit-…2   audit-…1 ─► Next, Drop
//	          (written)             (read, and removed once it is drained)
//
// A frame that a crash or a full disk has cut short, or that was damaged, is found by its checksums. The
// rest of its segment is skipped, and later segments are read.
package spool
