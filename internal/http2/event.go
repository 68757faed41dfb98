package http2

// EventKind is what an Event says.
type EventKind uint8

// The kinds of events.
const (
	// Head: the head of a request, or of a response, has arrived on Stream. The owner must
	// call ReadRequest or ReadResponse before the next call of Next. End is set if no body
	// follows.
	Head EventKind = iota + 1
	// Trailers: the trailers have arrived on Stream, which has ended. The owner may call
	// ReadTrailers before the next call of Next.
	Trailers
	// Data: Data of the body has arrived on Stream. It is part of what was fed. End is set with the
	// last data, which may be empty.
	Data
	// Reset: Stream was reset with Code: by this side for an error of the peer if Local is set,
	// else by the peer. The owner ends the exchange and calls Done.
	Reset
	// Window: the window of Stream, or of the connection if Stream is 0, was used up and is open
	// again.
	Window
	// SettingsChanged: the peer's settings have arrived. More streams may be possible, and
	// more may be sent on all streams.
	SettingsChanged
	// PingReply: the reply to a Ping has arrived, with its Data.
	PingReply
	// GoAway: the peer will serve no streams beyond those up to Last, for the reason Code.
	// For a client, a Reset with REFUSED_STREAM follows for each stream beyond it.
	GoAway
)

// Event is something that the peer has done.
type Event struct {
	Kind   EventKind
	End    bool // Stream has ended: nothing follows on it but, perhaps, a Reset
	Local  bool
	Stream uint32
	Code   Code
	Last   uint32
	Data   []byte // valid until the next call of Next
	Owner  any    // what SetOwner has set for Stream
}
