package http2

import (
	"time"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/http2/hpack"
)

// Bounds on what a peer can do to a connection. Beyond them the connection ends with
// ENHANCE_YOUR_CALM, unless a comment says otherwise.
const (
	// MaxStreams is the default of Config.MaxStreams. Further streams are refused.
	MaxStreams = 128
	// StreamWindow and ConnWindow are the defaults of Config.StreamWindow and ConnWindow in
	// bytes. Data beyond them is a FLOW_CONTROL_ERROR.
	StreamWindow = defaultWindow
	ConnWindow   = 1 << 20
	// MaxBacklog is the length of the replies in bytes that may wait to be sent before a
	// connection is Backlogged.
	MaxBacklog = 64 << 10

	// maxContinuations is the number of CONTINUATION frames after a HEADERS frame, where an empty
	// frame counts as two. A response may have more, because its head may be longer.
	maxContinuations         = 8
	maxResponseContinuations = 32
	// maxCrumbs is the number of cookie fields that a request may have beyond the limit on fields.
	// They are joined, and count as one field.
	maxCrumbs = 156
	// maxPseudo is the number of pseudo-header fields that a head can have.
	maxPseudo = 5
	// assumedStreams is the limit on concurrent streams towards a server whose settings have
	// not arrived (RFC 9113, 6.5.2 recommends servers to allow at least 100).
	assumedStreams = 100
	// maxFree bounds the credit for frames that reply to data. It is enough for all the data that
	// an owner may have on its way in frames of a few bytes, even if the client replies to each
	// frame twice.
	maxFree = 1 << 15
)

// limits are the bounds on heads that a peer sends, by its role.
type limits struct {
	block         int // bytes of a header block
	continuations int
	hpack         hpack.Limits
}

// The bounds on text are the same as in package http1. hpack counts 32 bytes more for a field, and
// must not stop a head that is within the bounds.
func limitsOf(r Role) limits {
	const overhead = 32
	if r == Client {
		const fields = http1.MaxResponseFields + maxPseudo
		return limits{block: http1.MaxResponseHead, continuations: maxResponseContinuations,
			hpack: hpack.Limits{Size: http1.MaxResponseHead + overhead*fields, Fields: fields}}
	}
	const fields = http1.MaxFields + maxCrumbs + maxPseudo
	return limits{block: http1.MaxHead, continuations: maxContinuations,
		hpack: hpack.Limits{Size: http1.MaxHead + overhead*fields, Fields: fields}}
}

// bucket is a token bucket (GCRA). Its zero value is full.
type bucket struct {
	until int64 // time at which the bucket will be full again, in nanoseconds
}

// rate is the rate of a bucket: burst tokens at once, and then one in each interval.
type rate struct {
	burst    int64
	interval int64 // nanoseconds
}

// The rates of a connection.
//
//nolint:gochecknoglobals // constants
var (
	// controlRate bounds the frames that carry nothing: SETTINGS, PING, RST_STREAM, empty DATA,
	// WINDOW_UPDATE, PRIORITY and unknown frames, except frames in reply to data.
	controlRate = rate{burst: 1000, interval: int64(time.Second / 100)}
	// resetRate bounds the streams that a client resets, or makes the server reset by its
	// errors.
	resetRate = rate{burst: 200, interval: int64(time.Second / 33)}
)

// take takes n tokens and reports whether there were that many.
func (b *bucket) take(now, n int64, r rate) bool {
	b.until = max(b.until, now) + n*r.interval
	return b.until-now <= r.burst*r.interval
}
