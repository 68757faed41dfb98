package http2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/keygate/keygate/internal/http1"
)

// script is what a peer sends. It has frames that a correct peer never sends, too.
type script struct {
	bytes.Buffer
	enc   *hpack.Encoder
	block bytes.Buffer
}

// newClient returns the script of a client: the preface and its settings.
func newClient() *script {
	s := newServer()
	frames := bytes.Clone(s.Bytes())
	s.Reset()
	s.WriteString(Preface)
	s.Write(frames)
	return s
}

// newServer returns the script of a server: its settings, and the acknowledgement.
func newServer() *script {
	s := new(script)
	s.enc = hpack.NewEncoder(&s.block)
	s.Write(AppendSettingsAck(AppendSettings(nil)))
	return s
}

// frame adds any frame.
func (s *script) frame(kind FrameType, flags Flags, stream uint32, payload string) *script {
	s.Write(AppendFrameHeader(nil, FrameHeader{Length: len(payload), Type: kind, Flags: flags, Stream: stream}))
	s.WriteString(payload)
	return s
}

// encode returns a header block. Fields are "name: value", pseudo-header fields too.
func (s *script) encode(fields ...string) string {
	s.block.Reset()
	for _, f := range fields {
		i := strings.Index(f[1:], ": ") + 1
		_ = s.enc.WriteField(hpack.HeaderField{Name: f[:i], Value: f[i+2:]})
	}
	return s.block.String()
}

// head adds a whole header block. flags is 0 or FlagEndStream.
func (s *script) head(stream uint32, flags Flags, fields ...string) *script {
	s.Write(AppendHeaders(nil, stream, []byte(s.encode(fields...)), flags == FlagEndStream))
	return s
}

var get = []string{":method: GET", ":scheme: https", ":path: /", ":authority: a.test"}

var post = []string{":method: POST", ":scheme: https", ":path: /", ":authority: a.test"}

func (s *script) get(stream uint32) *script  { return s.head(stream, FlagEndStream, get...) }
func (s *script) post(stream uint32) *script { return s.head(stream, 0, post...) }

func (s *script) reset(stream uint32, code Code) *script {
	s.Write(AppendReset(nil, stream, code))
	return s
}

func u32(values ...uint32) string {
	var b []byte
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return string(b)
}

func setting(id SettingID, v uint32) string {
	return string(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, uint16(id)), v))
}

// owner feeds a Conn, reads the heads, and writes down what happens.
type owner struct {
	*Conn
	now   int64
	lines []string
	// Data that is not in a line yet, and its stream.
	body   []byte
	bodyOf uint32
	// onEvent, if it is set, is called with each event after the head was read. For a request
	// whose head failed it is not called.
	onEvent func(ev *Event)
	out     []byte // all output so far
}

func newOwner(cfg Config) *owner { return &owner{Conn: NewConn(cfg)} }

func (d *owner) feed(b []byte) {
	var ev Event
	d.Feed(d.now, b)
	for d.Next(&ev) {
		d.event(&ev)
	}
	d.out = append(d.out, d.Take(nil)...)
}

// event writes down an event. Pieces of the data of one stream are one line.
func (d *owner) event(ev *Event) {
	line := ""
	switch ev.Kind {
	case Head:
		text, err := d.readHead()
		line = fmt.Sprintf("head %d %s", ev.Stream, text)
		if err != nil {
			line = fmt.Sprintf("head %d error: %v", ev.Stream, err)
		}
		if isMalformed(err) {
			d.add(line, ev)
			d.Done(ev.Stream)
			return
		}
	case Trailers:
		var t TrailerFields
		err := d.ReadTrailers(&t)
		line = fmt.Sprintf("trailers %d %s", ev.Stream, fieldLines(t.Text, t.Fields()))
		if err != nil {
			line = fmt.Sprintf("trailers %d error: %v", ev.Stream, err)
		}
	case Data:
		d.data(ev)
	case Reset:
		line = fmt.Sprintf("reset %d %v local=%v", ev.Stream, ev.Code, ev.Local)
	case Window:
		line = fmt.Sprintf("window %d", ev.Stream)
	case SettingsChanged:
		line = "settings"
	case PingReply:
		line = fmt.Sprintf("ping %q", ev.Data)
	case GoAway:
		line = fmt.Sprintf("goaway %d %v", ev.Last, ev.Code)
	default:
		line = fmt.Sprintf("unknown event %d", ev.Kind)
	}
	if ev.Kind != Data {
		d.add(line, ev)
	}
	if d.onEvent != nil {
		d.onEvent(ev)
	}
}

// data writes down data, with what has come before of the same stream.
func (d *owner) data(ev *Event) {
	if len(d.body) > 0 && d.bodyOf != ev.Stream {
		d.endData("")
	}
	d.body, d.bodyOf = append(d.body, ev.Data...), ev.Stream
	if ev.End {
		d.endData(" end")
	}
}

func (d *owner) endData(suffix string) {
	d.lines = append(d.lines, fmt.Sprintf("data %d %q%s", d.bodyOf, d.body, suffix))
	d.body = d.body[:0]
}

func (d *owner) add(line string, ev *Event) {
	if len(d.body) > 0 {
		d.endData("")
	}
	if ev.End {
		line += " end"
	}
	d.lines = append(d.lines, line)
}

// readHead returns a head as one line.
func (d *owner) readHead() (string, error) {
	if d.cfg.Role == Client {
		var r Response
		err := d.ReadResponse(&r)
		return fmt.Sprintf("%d length=%d chunked=%v %s", r.Status, r.ContentLength(), r.Chunked(), fieldLines(r.Text, r.Fields())), err
	}
	var r Request
	err := d.ReadRequest(&r)
	return fmt.Sprintf("%s %s length=%d chunked=%v protocol=%s %s", r.Method.Of(r.Text), r.Target.Of(r.Text), r.ContentLength(), r.Chunked(),
		r.Protocol.Of(r.Text), fieldLines(r.Text, r.Fields())), err
}

func fieldLines(text []byte, fields []http1.Field) string {
	var lines []string
	for i := range fields {
		lines = append(lines, string(fields[i].Name.Of(text))+": "+string(fields[i].Value.Of(text)))
	}
	return strings.Join(lines, " | ")
}

// trace returns everything that happened, and the error that ended the connection.
func (d *owner) trace() string {
	if len(d.body) > 0 {
		d.endData("")
	}
	lines := d.lines
	var e *ConnError
	if errors.As(d.Err(), &e) {
		lines = append(lines[:len(lines):len(lines)], "failed "+e.Code.String())
	}
	return strings.Join(lines, "\n")
}

// sent returns the frames of the output of one kind, as "stream:payload".
func (d *owner) sent(kind FrameType) (frames []string) {
	for _, f := range parseFrames(d.out) {
		if f.Type == kind {
			frames = append(frames, fmt.Sprintf("%d:%s", f.Stream, f.payload))
		}
	}
	return frames
}

type parsedFrame struct {
	FrameHeader
	payload []byte
}

// parseFrames splits bytes into frames, after the preface if there is one.
func parseFrames(b []byte) (frames []parsedFrame) {
	b = bytes.TrimPrefix(b, []byte(Preface))
	for len(b) >= FrameHeaderLen {
		h := ParseFrameHeader(b)
		end := min(FrameHeaderLen+h.Length, len(b))
		frames = append(frames, parsedFrame{h, b[FrameHeaderLen:end]})
		b = b[end:]
	}
	return frames
}

// want compares lines of a trace. Each wanted line is the beginning of a line.
func (d *owner) want(t *testing.T, want ...string) {
	t.Helper()
	got := strings.Split(d.trace(), "\n")
	same := len(got) == len(want)
	for i := range min(len(got), len(want)) {
		same = same && strings.HasPrefix(got[i], want[i])
	}
	if !same {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// splits returns an input whole, in single bytes, and in random pieces.
func splits(r *rand.Rand, input []byte) (all [][][]byte) {
	var bytewise [][]byte
	for i := range input {
		bytewise = append(bytewise, input[i:i+1])
	}
	all = append(all, bytewise)
	for range 2 {
		var pieces [][]byte
		for rest := input; len(rest) > 0; {
			n := min(1+r.IntN(1+r.IntN(64)), len(rest))
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		all = append(all, pieces)
	}
	return all
}

// play feeds a script to a new Conn in the given pieces, each in memory that is destroyed
// afterwards, and ends each exchange when it is reset.
func play(cfg Config, setup func(*owner), pieces [][]byte) *owner {
	d := newOwner(cfg)
	if setup != nil {
		setup(d)
	}
	before := d.onEvent
	d.onEvent = func(ev *Event) {
		if before != nil {
			before(ev)
		}
		if ev.Kind == Reset {
			d.Done(ev.Stream)
		}
	}
	for _, p := range pieces {
		b := bytes.Clone(p)
		d.feed(b)
		for i := range b {
			b[i] = 0xa5
		}
	}
	return d
}

// playAll plays a script whole and in pieces, and fails if the traces differ.
func playAll(t *testing.T, cfg Config, setup func(*owner), input []byte) *owner {
	t.Helper()
	whole := play(cfg, setup, [][]byte{input})
	r := rand.New(rand.NewPCG(uint64(len(input)), 11))
	for i, pieces := range splits(r, input) {
		if d := play(cfg, setup, pieces); d.trace() != whole.trace() {
			t.Fatalf("split %d of %q\ngot:\n%s\nwant, as in one piece:\n%s", i, input, d.trace(), whole.trace())
		}
	}
	return whole
}
