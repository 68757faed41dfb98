package http2

import (
	"github.com/keygate/keygate/internal/http2/hpack"
)

// Role is the end of a connection that a Conn is.
type Role uint8

// The roles.
const (
	Server Role = iota // towards the gateway's clients
	Client             // towards upstreams
)

// Config configures a Conn. Its zero value is for a server.
type Config struct {
	Role Role
	// MaxStreams is the maximum number of streams at the same time; a client keeps to the
	// server's limit as well. 0 means the constant MaxStreams, which is also the maximum.
	MaxStreams int
	// StreamWindow and ConnWindow are how many bytes of bodies a peer may send before the owner
	// calls Consumed, on one stream and on all streams. 0 means the constant of the same name. They
	// are at least 65,535 bytes, which a peer may send before it has read any settings.
	//
	// As a client, a Conn renews the window of the connection by itself, so that a stream
	// whose data is not consumed does not stop the others.
	StreamWindow, ConnWindow int
	// ExtendedConnect makes a server announce that it takes extended CONNECT requests
	// (RFC 8441). Without it they are malformed.
	ExtendedConnect bool
	// Secrets are the names of fields, in lower case, that are never indexed, in addition to the
	// fields that hpack.Encoder knows.
	Secrets []string
}

func (c *Config) setDefaults() {
	if c.MaxStreams <= 0 || c.MaxStreams > MaxStreams {
		c.MaxStreams = MaxStreams
	}
	if c.StreamWindow == 0 {
		c.StreamWindow = StreamWindow
	}
	if c.ConnWindow == 0 {
		c.ConnWindow = ConnWindow
	}
	c.StreamWindow = min(max(c.StreamWindow, defaultWindow), MaxWindow)
	c.ConnWindow = min(max(c.ConnWindow, defaultWindow), MaxWindow)
}

// Conn is the protocol of one connection. It is not safe for concurrent use: an owner whose
// streams are served by several goroutines holds a lock around each call, and around the
// calls from BeginHead to EndHead.
type Conn struct {
	cfg    Config
	limits limits
	input
	block   blockState
	decoder *hpack.Decoder
	encoder *hpack.Encoder

	streams  table
	recent   recent
	last     uint32 // the highest stream that the client has opened, be it the peer or this side
	accepted uint32 // the highest stream that this side serves: last of GOAWAY, or MaxStreamID

	recv    int64  // what the peer may still send on the connection
	credit  int64  // given back, but not yet announced to the peer
	send    int64  // what may still be sent on the connection
	refills uint64 // WINDOW_UPDATE frames for the connection

	peer    peerSettings
	unacked int // SETTINGS frames that the peer has not acknowledged
	pings   int // PING frames that the peer has not replied to

	control bucket
	resets  bucket
	free    int // frames in reply to data that are not counted

	gone    bool   // GOAWAY was received
	lastOur uint32 // the last stream that the peer will serve, after GOAWAY
	refused int    // the next slot to search for streams that the peer will not serve, or -1

	out       []byte
	replies   int // bytes of out that reply to the peer's frames
	headStart int // where the head being written begins in out
	headID    uint32
	err       error // a *ConnError
}

// NewConn returns a Conn. Its output begins with the bytes that this side must send first.
func NewConn(cfg Config) *Conn {
	cfg.setDefaults()
	c := &Conn{
		cfg: cfg, limits: limitsOf(cfg.Role), accepted: MaxStreamID, lastOur: MaxStreamID, refused: -1,
		recv: int64(cfg.ConnWindow), send: defaultWindow, unacked: 1, encoder: hpack.NewEncoder(cfg.Secrets),
		peer: peerSettings{streams: assumedStreams, window: defaultWindow, table: hpack.TableSize},
	}
	c.decoder = hpack.NewDecoder(c.limits.hpack, fieldTags)
	if cfg.Role == Client {
		c.out = append(c.out, Preface...)
		c.phase = phaseHeader
	}
	c.out = AppendSettings(c.out, c.settings()...)
	if extra := cfg.ConnWindow - defaultWindow; extra > 0 {
		c.out = AppendWindowUpdate(c.out, 0, uint32(extra))
	}
	return c
}

// Err returns the error that has ended the connection, a *ConnError, or nil. The output then
// ends with a GOAWAY frame; the owner sends it and closes the connection.
func (c *Conn) Err() error { return c.err }

// Take returns the output, which is to be sent, and continues with the memory of spare.
func (c *Conn) Take(spare []byte) []byte {
	out := c.out
	c.out, c.replies = spare[:0], 0
	return out
}

// Pending returns the length of the output in bytes.
func (c *Conn) Pending() int { return len(c.out) }

// Backlogged reports whether too many replies wait to be sent: the Conn must then not be fed before
// Take.
func (c *Conn) Backlogged() bool { return c.replies > MaxBacklog }

// AwaitsHead reports whether the peer's preface and first settings, a header block, or the header
// of a frame is incomplete. The peer must not take long to complete it. begun changes when the next
// such item has begun.
func (c *Conn) AwaitsHead() (begun uint64, open bool) {
	if c.phase == phasePreface || !c.peer.known {
		return 0, true
	}
	return c.begun, c.block.open || c.phase == phaseHeader && c.n > 0
}

// Streams returns the number of streams on which Done has not been called.
func (c *Conn) Streams() int { return c.streams.n }

// Ended reports whether a stream has ended on both sides, so that Done resets nothing.
func (c *Conn) Ended(id uint32) bool {
	s := c.streams.find(id)
	return s != nil && s.is(localEnd) && s.is(remoteEnd)
}

// Drain asks a client to open no more streams, with GOAWAY for the last possible stream. The owner
// calls GoAway later, when the client has had time to read it, which the reply to a Ping shows.
func (c *Conn) Drain() {
	if c.err == nil {
		c.out = AppendGoAway(c.out, MaxStreamID, NoError, "")
	}
}

// Opened reports whether the peer of a server has opened a stream.
func (c *Conn) Opened() bool { return c.last > 0 }

// GoAway tells the peer that streams which it has not opened yet will not be served. The
// others continue.
func (c *Conn) GoAway(code Code) {
	if c.err == nil && c.accepted == MaxStreamID {
		c.accepted = c.lastPeer()
		c.out = AppendGoAway(c.out, c.accepted, code, "")
	}
}

// Ping sends a PING frame. The reply is a PingReply event with the same data.
func (c *Conn) Ping(data [8]byte) {
	if c.err == nil {
		c.pings++
		c.out = AppendPing(c.out, false, data)
	}
}

// lastPeer returns the highest stream that the peer has opened. A server opens none.
func (c *Conn) lastPeer() uint32 {
	if c.cfg.Role == Client {
		return 0
	}
	return c.last
}

// fail ends the connection.
func (c *Conn) fail(code Code, reason string) {
	if c.err != nil {
		return
	}
	c.out = AppendGoAway(c.out, min(c.lastPeer(), c.accepted), code, reason)
	c.err = &ConnError{Code: code, Reason: reason}
}

// reply counts as a reply what was appended to the output since it had n bytes.
func (c *Conn) reply(n int) { c.replies += len(c.out) - n }

// countControl counts n frames that carry nothing.
func (c *Conn) countControl(n int) {
	if !c.control.take(c.now, int64(n), controlRate) {
		c.fail(EnhanceYourCalm, "too many control frames")
	}
}

// countReply counts a frame that may be in reply to data.
func (c *Conn) countReply() {
	if c.free > 0 {
		c.free--
		return
	}
	c.countControl(1)
}

// countReset counts a stream that a client has reset, or made this side reset.
func (c *Conn) countReset() {
	if !c.resets.take(c.now, 1, resetRate) {
		c.fail(EnhanceYourCalm, "too many resets")
	}
}
