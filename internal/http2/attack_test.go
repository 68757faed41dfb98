package http2

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/http1"
)

// failAfter feeds frames to a server, all at the same time, until it ends the connection, and
// returns how many it took. setup makes streams, and frame adds the frame with a number.
func failAfter(t *testing.T, d *owner, s *script, limit int, frame func(s *script, i int)) int {
	t.Helper()
	for i := range limit {
		frame(s, i)
		d.feed(s.Bytes())
		s.Reset()
		if d.Err() != nil {
			return i + 1
		}
	}
	return limit
}

// ending returns an owner that ends exchanges when they are reset.
func ending() *owner {
	d := newOwner(Config{})
	d.onEvent = func(ev *Event) {
		if ev.Kind == Reset {
			d.Done(ev.Stream)
		}
	}
	return d
}

const calm = "failed ENHANCE_YOUR_CALM"

// Guarantee: a client that resets its requests, or makes the server reset them (CVE-2023-44487,
// CVE-2025-8671), loses its connection after 200 of them at once, and may go on at 33 a second.
func TestRapidReset(t *testing.T) {
	id := func(i int) uint32 { return uint32(2*i + 1) }
	for _, c := range []struct {
		name  string
		frame func(s *script, i int)
	}{
		{"RST_STREAM", func(s *script, i int) { s.get(id(i)).reset(id(i), Cancel) }},
		{"DATA after the end", func(s *script, i int) { s.get(id(i)).frame(FrameData, 0, id(i), "x") }},
		{"HEADERS after the end", func(s *script, i int) { s.get(id(i)).get(id(i)) }},
		{"WINDOW_UPDATE of 0", func(s *script, i int) { s.get(id(i)).frame(FrameWindowUpdate, 0, id(i), u32(0)) }},
		{"window too large", func(s *script, i int) { s.get(id(i)).frame(FrameWindowUpdate, 0, id(i), u32(MaxWindow)) }},
		{"PRIORITY of the wrong length", func(s *script, i int) { s.get(id(i)).frame(FramePriority, 0, id(i), "x") }},
		{"PRIORITY on itself", func(s *script, i int) { s.get(id(i)).frame(FramePriority, 0, id(i), u32(id(i))+"x") }},
		{"malformed head", func(s *script, i int) { s.head(id(i), FlagEndStream, ":method: GET") }},
		{"wrong content-length", func(s *script, i int) {
			s.head(id(i), 0, append(post, "content-length: 2")...).frame(FrameData, FlagEndStream, id(i), "x")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := ending()
			if n := failAfter(t, d, newClient(), 1000, c.frame); n != 201 || !strings.HasSuffix(d.trace(), calm) {
				t.Errorf("got the end after %d requests, error %v; want %s after 201", n, d.Err(), calm)
			}
			d = ending()
			n := failAfter(t, d, newClient(), 1000, func(s *script, i int) {
				d.now += int64(time.Second) / 33
				c.frame(s, i)
			})
			if n != 1000 {
				t.Errorf("at 33 a second: got the end after %d requests, error %v; want none", n, d.Err())
			}
		})
	}
}

// Guarantee: a stream holds its slot until the owner has ended the exchange: resets make no room
// for further requests, and requests beyond MAX_CONCURRENT_STREAMS are refused.
func TestResetsFreeNoSlots(t *testing.T) {
	d := newOwner(Config{}) // never calls Done
	s := newClient()
	for i := range 160 {
		s.get(uint32(2*i+1)).reset(uint32(2*i+1), Cancel)
	}
	d.feed(s.Bytes())
	if heads := strings.Count(d.trace(), "head "); heads != MaxStreams || d.Streams() != MaxStreams {
		t.Errorf("got %d requests, %d streams; want %d", heads, d.Streams(), MaxStreams)
	}
	if refused := len(d.sent(FrameReset)); refused != 160-MaxStreams {
		t.Errorf("got %d streams refused, want %d", refused, 160-MaxStreams)
	}
	d.Done(1)
	s.Reset()
	d.feed(s.get(1001).Bytes())
	if !strings.HasSuffix(d.trace(), "host: a.test end") {
		t.Errorf("after Done: got %q, want another request", d.lines[len(d.lines)-1])
	}
}

// Guarantee: frames that carry nothing end the connection after 1,000 of them at once, and
// may come at 100 a second.
func TestControlFloods(t *testing.T) {
	for _, c := range []struct {
		name  string
		frame func(s *script, i int)
	}{
		{"SETTINGS", func(s *script, _ int) { s.frame(FrameSettings, 0, 0, "") }},
		{"PING", func(s *script, _ int) { s.frame(FramePing, 0, 0, "12345678") }},
		{"replies to no PING", func(s *script, _ int) { s.frame(FramePing, FlagAck, 0, "12345678") }},
		{"empty DATA", func(s *script, _ int) { s.frame(FrameData, 0, 1, "") }},
		{"DATA of padding alone", func(s *script, _ int) { s.frame(FrameData, FlagPadded, 1, "\x00") }},
		{"WINDOW_UPDATE", func(s *script, _ int) { s.frame(FrameWindowUpdate, 0, 0, u32(1)) }},
		{"WINDOW_UPDATE of a stream", func(s *script, _ int) { s.frame(FrameWindowUpdate, 0, 1, u32(1)) }},
		{"PRIORITY", func(s *script, _ int) { s.frame(FramePriority, 0, 1, u32(0)+"x") }},
		{"GOAWAY", func(s *script, _ int) { s.frame(FrameGoAway, 0, 0, u32(0, 0)) }},
		{"unknown frames", func(s *script, _ int) { s.frame(0x42, 0, 0, "x") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := newClient().post(1)
			d := newOwner(Config{})
			d.feed(start.Bytes())
			start.Reset()
			d.now = int64(time.Minute)
			if n := failAfter(t, d, start, 3000, c.frame); n != 1001 || !strings.HasSuffix(d.trace(), calm) {
				t.Errorf("got the end after %d frames, error %v; want %s after 1001", n, d.Err(), calm)
			}
			start = newClient().post(1)
			d = newOwner(Config{})
			n := failAfter(t, d, start, 3000, func(s *script, i int) {
				d.now += int64(time.Second) / 100
				c.frame(s, i)
			})
			if n != 3000 {
				t.Errorf("at 100 a second: got the end after %d frames, error %v; want none", n, d.Err())
			}
		})
	}
}

// Guarantee: a client that receives a lot of data may reply to each frame with window updates
// and a PING, however fast that is.
func TestRepliesToDataDoNotCount(t *testing.T) {
	d := newOwner(Config{})
	s := newClient().get(1)
	d.feed(s.Bytes())
	for i := range 20000 {
		d.Data(1, make([]byte, 1000), false)
		s.Reset()
		s.frame(FrameWindowUpdate, 0, 0, u32(1000)).frame(FrameWindowUpdate, 0, 1, u32(1000)).frame(FramePing, 0, 0, "12345678")
		d.feed(s.Bytes())
		d.out = d.out[:0]
		if d.Err() != nil {
			t.Fatalf("after %d frames of data: %v", i, d.Err())
		}
	}
}

// Guarantee: a client may also reply late, to thousands of small frames that were in flight at the
// same time.
func TestLateRepliesToDataDoNotCount(t *testing.T) {
	d := newOwner(Config{})
	s := newClient().get(1)
	d.feed(s.Bytes())
	s.Reset()
	const frames = 8000 // as many as 80 KiB have room for
	for range frames {
		d.Data(1, []byte("x"), false)
		s.frame(FrameWindowUpdate, 0, 0, u32(1)).frame(FrameWindowUpdate, 0, 1, u32(1)).frame(FramePing, 0, 0, "12345678")
	}
	d.out = d.out[:0]
	for b := s.Bytes(); len(b) > 0; b = b[min(len(b), 4096):] {
		d.feed(b[:min(len(b), 4096)])
		d.out = d.out[:0]
		if d.Err() != nil {
			t.Fatalf("%d bytes before the end: %v", len(b), d.Err())
		}
	}
}

// Guarantee: a header block has at most 8 CONTINUATION frames after HEADERS, where empty frames
// count as two, and at most 64 KiB. A Conn holds no more of it.
func TestContinuationFlood(t *testing.T) {
	piece := strings.Repeat("x", MaxFrame)
	for _, c := range []struct {
		name    string
		first   string
		payload func(i int) string
		want    int
	}{
		{"frames of a byte", "", func(int) string { return "\x88" }, 9},
		{"empty frames", "", func(int) string { return "" }, 5},
		{"empty and other frames", "", func(i int) string { return strings.Repeat("\x88", i&1) }, 6},
		{"bytes", piece, func(int) string { return piece }, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newOwner(Config{})
			s := newClient().frame(FrameHeaders, 0, 1, c.first)
			n := failAfter(t, d, s, 100, func(s *script, i int) { s.frame(FrameContinuation, 0, 1, c.payload(i)) })
			if n != c.want || !strings.HasSuffix(d.trace(), calm) {
				t.Errorf("got the end after %d CONTINUATION frames, error %v; want %s after %d", n, d.Err(), calm, c.want)
			}
			if size := cap(d.block.buf); size > 2*64<<10 {
				t.Errorf("got %d bytes held, want at most %d", size, 2*64<<10)
			}
			if _, open := d.AwaitsHead(); !open {
				t.Error("got AwaitsHead false within a header block, want true")
			}
		})
	}
}

// Guarantee: a header block that expands to more than the limits, from a few bytes, is
// answered with an error before it is expanded, the connection goes on with its table intact,
// and the head holds no more memory than the limits allow.
func TestHPACKBomb(t *testing.T) {
	value := strings.Repeat("v", 4000)
	d := newOwner(Config{})
	s := newClient().head(1, FlagEndStream, append(get, "x-bomb: "+value)...)
	bomb := s.encode(get...) + strings.Repeat("\xbe", 10000)
	s.frame(FrameHeaders, FlagEndHeaders|FlagEndStream, 3, bomb).head(5, FlagEndStream, append(get, "x-bomb: "+value)...)
	var texts []int
	var ev Event
	d.Feed(0, s.Bytes())
	for d.Next(&ev) {
		if ev.Kind != Head {
			continue
		}
		var r Request
		err := d.ReadRequest(&r)
		texts = append(texts, cap(r.Text))
		if want := ev.Stream == 3; errors.Is(err, http1.ErrHead) != want {
			t.Errorf("stream %d: got error %v, want %v: %v", ev.Stream, err, http1.ErrHead, want)
		}
	}
	if len(texts) != 3 || d.Err() != nil {
		t.Fatalf("got %d requests, error %v; want 3 requests", len(texts), d.Err())
	}
	for _, n := range texts {
		if n > 3*64<<10 {
			t.Errorf("got %d bytes of memory for a head, want at most %d", n, 3*64<<10)
		}
	}
}

// Guarantee: replies that nobody takes make a Conn Backlogged after 64 KiB, and each byte that it
// is fed adds only few bytes to them.
func TestBacklog(t *testing.T) {
	d := newOwner(Config{})
	s := newClient()
	var ev Event
	for i := 0; !d.Backlogged(); i++ {
		if i > MaxBacklog {
			t.Fatal("got no backlog")
		}
		s.frame(FramePing, 0, 0, "12345678")
		d.Feed(int64(i)*int64(time.Second), s.Bytes())
		for d.Next(&ev) {
			continue
		}
		s.Reset()
	}
	if n := d.Pending(); n < MaxBacklog || n > MaxBacklog+200 {
		t.Errorf("got %d bytes when the Conn is Backlogged, want just more than %d", n, MaxBacklog)
	}
	d.Take(nil)
	if d.Backlogged() {
		t.Error("got Backlogged after Take, want not")
	}
}

// Guarantee: data that the owner has not consumed cannot exceed the window of a stream or of
// the connection, and 15 uploads that stall do not stop a 16th.
func TestStalledUploads(t *testing.T) {
	d := newOwner(Config{})
	s := newClient()
	upload := func(id uint32) {
		s.post(id)
		for range 3 {
			s.frame(FrameData, 0, id, strings.Repeat("x", MaxFrame))
		}
		s.frame(FrameData, 0, id, strings.Repeat("x", MaxFrame-1))
	}
	for i := range uint32(15) {
		upload(2*i + 1)
	}
	d.feed(s.Bytes())
	const honest = 31
	for i := range 50 { // 3.2 MB
		s.Reset()
		if i == 0 {
			s.post(honest)
		}
		s.frame(FrameData, 0, honest, strings.Repeat("x", MaxFrame))
		d.feed(s.Bytes())
		d.Consumed(honest, MaxFrame)
	}
	if d.Err() != nil || strings.Contains(d.trace(), "reset") {
		t.Fatalf("beside stalled uploads: got error %v, %s", d.Err(), d.lines[len(d.lines)-1])
	}
	s.Reset()
	s.frame(FrameData, 0, 1, "x") // one more than the window of the stream
	d.feed(s.Bytes())
	if want := "reset 1 FLOW_CONTROL_ERROR local=true"; !strings.HasSuffix(d.trace(), want) {
		t.Errorf("got %q, want %q", d.lines[len(d.lines)-1], want)
	}
}

// Guarantee: after Data has sent less than everything, a Window event says when more can be sent,
// whatever has happened meanwhile: SETTINGS, or data of another stream that used up the window of
// the connection exactly.
func TestWindowThatOpensIsAnnounced(t *testing.T) {
	check := func(s *script, between func(d *owner), opened *script, want string) {
		t.Helper()
		d := newOwner(Config{})
		d.feed(s.Bytes())
		if n, ok := d.Data(1, make([]byte, 70_000), false); n == 70_000 || !ok {
			t.Fatalf("got Data %d, %v; want less than all", n, ok)
		}
		between(d)
		if d.Window(1) > 0 {
			t.Fatalf("got a window of %d, want none", d.Window(1))
		}
		d.feed(opened.Bytes())
		if last := d.lines[len(d.lines)-1]; last != want || d.Window(1) == 0 {
			t.Errorf("got the event %q and a window of %d, want %q", last, d.Window(1), want)
		}
	}
	small := newClient().frame(FrameSettings, 0, 0, setting(SettingInitialWindowSize, 3)).get(1)
	check(small, func(d *owner) {
		d.feed(new(script).frame(FrameSettings, 0, 0, setting(SettingInitialWindowSize, 2)).Bytes())
	}, new(script).frame(FrameWindowUpdate, 0, 1, u32(2)), "window 1")
	larger := newClient().frame(FrameSettings, 0, 0, setting(SettingInitialWindowSize, 1<<20)).get(1).get(3)
	check(larger, func(d *owner) {
		d.feed(new(script).frame(FrameWindowUpdate, 0, 0, u32(10)).Bytes())
		if n, ok := d.Data(3, make([]byte, 10), false); n != 10 || !ok {
			t.Fatalf("got Data %d, %v; want 10", n, ok)
		}
		d.feed(new(script).frame(FrameSettings, 0, 0, "").Bytes())
	}, new(script).frame(FrameWindowUpdate, 0, 0, u32(1)), "window 0")
}

// Guarantee: data of many streams that exceeds the window of the connection ends it.
func TestConnectionWindow(t *testing.T) {
	d := newOwner(Config{})
	s := newClient()
	n := failAfter(t, d, s, 20, func(s *script, i int) {
		s.post(uint32(2*i + 1))
		for range 3 {
			s.frame(FrameData, 0, uint32(2*i+1), strings.Repeat("x", MaxFrame))
		}
		s.frame(FrameData, 0, uint32(2*i+1), strings.Repeat("x", MaxFrame-1))
	})
	if n != 17 || !strings.HasSuffix(d.trace(), "failed FLOW_CONTROL_ERROR") {
		t.Errorf("got the end with stream number %d, error %v; want a FLOW_CONTROL_ERROR with 17", n, d.Err())
	}
}

// Guarantee: padding, and data on streams that were reset, cost a peer no window for good.
func TestPaddingReturnsItsWindow(t *testing.T) {
	d := newOwner(Config{})
	s := newClient().post(1).post(3)
	d.feed(s.Bytes())
	d.Reset(3, NoError)
	d.Done(3)
	for range 10000 {
		s.Reset()
		s.frame(FrameData, FlagPadded, 1, "\xffx"+strings.Repeat("\x00", 255)).frame(FrameData, 0, 3, strings.Repeat("x", 300))
		d.feed(s.Bytes())
		d.Consumed(1, 1)
	}
	if d.Err() != nil || strings.Contains(d.trace(), "reset") {
		t.Fatalf("got error %v", d.Err())
	}
	if updates := len(d.sent(FrameWindowUpdate)); updates > 10000*(257*2+300)/creditStep+2 {
		t.Errorf("got %d WINDOW_UPDATE frames, want one for each %d bytes", updates, creditStep)
	}
}

// Guarantee: after a burst of streams a Conn does not keep the memory for them.
func TestTableShrinks(t *testing.T) {
	d := newOwner(Config{})
	s := newClient()
	for i := range MaxStreams {
		s.get(uint32(2*i + 1))
	}
	d.feed(s.Bytes())
	for i := range MaxStreams {
		d.Done(uint32(2*i + 1))
	}
	if n := len(d.streams.slots); n > keepSlots {
		t.Errorf("got room for %d streams after the last has ended, want at most %d", n, keepSlots)
	}
	if n := len(d.recent.ids); n > recentStreams {
		t.Errorf("got %d streams remembered, want at most %d", n, recentStreams)
	}
}

// Guarantee: a SETTINGS frame counts as one frame for every 16 settings in it.
func TestManySettingsCountMore(t *testing.T) {
	d := newOwner(Config{})
	full := strings.Repeat(setting(SettingInitialWindowSize, 1), MaxFrame/settingLen)
	n := failAfter(t, d, newClient(), 100, func(s *script, _ int) { s.frame(FrameSettings, 0, 0, full) })
	if n > 10 || !strings.HasSuffix(d.trace(), calm) {
		t.Errorf("got the end after %d frames with %d settings, error %v; want it within 10", n, len(full)/settingLen, d.Err())
	}
}

// Guarantee: after GOAWAY, streams that the peer opens are ignored, without an answer, and earlier
// streams go on; the heads of ignored streams keep the table of HPACK in step.
func TestGoAwayIgnoresNewStreams(t *testing.T) {
	d := newOwner(Config{})
	s := newClient().post(1)
	d.feed(s.Bytes())
	d.Drain()
	s.Reset()
	d.feed(s.post(3).Bytes())
	d.GoAway(NoError)
	s.Reset()
	s.head(5, 0, append(post, "x-new: "+strings.Repeat("v", 40))...).frame(FrameData, 0, 5, "x")
	s.frame(FrameData, FlagEndStream, 1, "body").head(3, FlagEndStream, "x-new: "+strings.Repeat("v", 40))
	d.feed(s.Bytes())
	d.want(t, settled, "head 1", "head 3", `data 1 "body" end`, "trailers 3 x-new: "+strings.Repeat("v", 40))
	want := []string{"0:" + u32(MaxStreamID, 0), "0:" + u32(3, 0)}
	if got := d.sent(FrameGoAway); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got GOAWAY frames %q, want %q", got, want)
	}
	if resets := d.sent(FrameReset); len(resets) > 0 {
		t.Errorf("got streams reset: %q", resets)
	}
}
