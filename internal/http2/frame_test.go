package http2

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	xhttp2 "golang.org/x/net/http2"
)

// Guarantee: x/net reads in each frame what was put into it.
func TestFramesAreReadByOthers(t *testing.T) {
	var b []byte
	b = AppendSettings(b, Setting{SettingMaxConcurrentStreams, 128}, Setting{SettingEnablePush, 0})
	b = AppendSettingsAck(b)
	b = AppendData(b, 1, []byte("data"), false)
	b = AppendData(b, 3, nil, true)
	b = AppendReset(b, 5, RefusedStream)
	b = AppendPing(b, false, [8]byte{1, 2, 3, 4, 5, 6, 7, 8})
	b = AppendPing(b, true, [8]byte{8})
	b = AppendGoAway(b, MaxStreamID, EnhanceYourCalm, "debug")
	b = AppendWindowUpdate(b, 7, MaxWindow)
	framer := xhttp2.NewFramer(nil, bytes.NewReader(b))
	var got []string
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			break
		}
		switch f := f.(type) {
		case *xhttp2.SettingsFrame:
			a, _ := f.Value(xhttp2.SettingMaxConcurrentStreams)
			got = append(got, fmt.Sprintf("settings %d %d %v", a, f.NumSettings(), f.IsAck()))
		case *xhttp2.DataFrame:
			got = append(got, fmt.Sprintf("data %d %s %v", f.StreamID, f.Data(), f.StreamEnded()))
		case *xhttp2.RSTStreamFrame:
			got = append(got, fmt.Sprintf("reset %d %v", f.StreamID, f.ErrCode))
		case *xhttp2.PingFrame:
			got = append(got, fmt.Sprintf("ping %x %v", f.Data, f.IsAck()))
		case *xhttp2.GoAwayFrame:
			got = append(got, fmt.Sprintf("goaway %d %v %s", f.LastStreamID, f.ErrCode, f.DebugData()))
		case *xhttp2.WindowUpdateFrame:
			got = append(got, fmt.Sprintf("window %d %d", f.StreamID, f.Increment))
		}
	}
	want := []string{"settings 128 2 false", "settings 0 0 true", "data 1 data false", "data 3  true", "reset 5 REFUSED_STREAM",
		"ping 0102030405060708 false", "ping 0800000000000000 true", "goaway 2147483647 ENHANCE_YOUR_CALM debug", "window 7 2147483647"}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Guarantee: a header block of any length is sent in frames of at most MaxFrame bytes. The last has
// END_HEADERS and the first END_STREAM, nothing is lost, and earlier output is untouched.
func TestHeaderBlocksAreSplit(t *testing.T) {
	for _, size := range []int{0, 1, MaxFrame - 1, MaxFrame, MaxFrame + 1, 2 * MaxFrame, 2*MaxFrame + 1, 5*MaxFrame + 77} {
		for _, end := range []bool{false, true} {
			block := make([]byte, size)
			for i := range block {
				block[i] = byte(i * 7 / 5)
			}
			out := AppendHeaders([]byte("before"), 9, block, end)
			if string(out[:6]) != "before" {
				t.Fatalf("%d bytes: got %q before the frames", size, out[:6])
			}
			var got []byte
			frames := parseFrames(out[6:])
			for i, f := range frames {
				kind, flags := FrameContinuation, Flags(0)
				if i == 0 {
					kind = FrameHeaders
					if end {
						flags |= FlagEndStream
					}
				}
				if i == len(frames)-1 {
					flags |= FlagEndHeaders
				}
				if f.Type != kind || f.Flags != flags || f.Stream != 9 || f.Length > MaxFrame || f.Length != len(f.payload) {
					t.Errorf("%d bytes, frame %d of %d: got %+v, want type %d, flags %d", size, i, len(frames), f.FrameHeader, kind, flags)
				}
				got = append(got, f.payload...)
			}
			if !bytes.Equal(got, block) {
				t.Errorf("%d bytes: the block is not the same in its frames", size)
			}
		}
	}
}

// Guarantee: the table of streams holds what a map would hold, with identifiers that collide
// as well.
func TestTableIsAMap(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 5))
		var tab table
		want := map[uint32]int64{}
		step := uint32(2 << r.IntN(10))
		var ids []uint32
		for i := range uint32(600) {
			id := 1 + i*step
			if len(want) < MaxStreams && r.IntN(3) > 0 {
				s := tab.add(id)
				s.length = int64(id)
				want[id] = int64(id)
				ids = append(ids, id)
			}
			if len(ids) > 0 && r.IntN(2) == 0 {
				k := r.IntN(len(ids))
				tab.remove(tab.find(ids[k]))
				delete(want, ids[k])
				ids = slices.Delete(ids, k, k+1)
			}
			if tab.n != len(want) || tab.find(id+step) != nil {
				t.Fatalf("seed %d: got %d streams, want %d", seed, tab.n, len(want))
			}
			for _, id := range ids {
				if s := tab.find(id); s == nil || s.id != id || s.length != want[id] {
					t.Fatalf("seed %d: stream %d: got %+v", seed, id, s)
				}
			}
		}
	}
}

// Guarantee: a token bucket gives its burst at once, then its rate, and never more than its
// burst after a pause.
func TestBucket(t *testing.T) {
	var b bucket
	r := rate{burst: 5, interval: 10}
	taken := func(now int64) (n int) {
		for b.take(now, 1, r) {
			n++
		}
		b.until -= r.interval // the one that was refused
		return n
	}
	for _, c := range []struct {
		now  int64
		want int
	}{{1000, 5}, {1009, 0}, {1010, 1}, {1030, 2}, {1e9, 5}} {
		if got := taken(c.now); got != c.want {
			t.Errorf("at %d: got %d tokens, want %d", c.now, got, c.want)
		}
	}
}
