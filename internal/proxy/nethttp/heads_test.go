package nethttp

import (
	"bytes"
	"io"
	"testing"

	"golang.org/x/net/http2"
)

// headIsOpen tells from all bytes that a client has sent whether a head is incomplete.
func headIsOpen(sent []byte) bool {
	if len(sent) <= len(http2.ClientPreface) {
		return false
	}
	r := bytes.NewReader(sent[len(http2.ClientPreface):])
	inBlock := false
	for r.Len() >= 9 {
		f, err := http2.ReadFrameHeader(r)
		if err != nil {
			panic(err)
		}
		head := f.Type == http2.FrameHeaders || f.Type == http2.FrameContinuation
		if head {
			inBlock = !f.Flags.Has(http2.FlagHeadersEndHeaders)
		}
		if n, _ := io.CopyN(io.Discard, r, int64(f.Length)); n < int64(f.Length) {
			return head || inBlock
		}
	}
	if r.Len() == 0 || inBlock {
		return inBlock
	}
	start, _ := io.ReadAll(r)
	return len(start) < 4 || http2.FrameType(start[3]) == http2.FrameHeaders || http2.FrameType(start[3]) == http2.FrameContinuation
}

// clientBytes returns what a client sends that uses every kind of frame.
func clientBytes(t testing.TB) []byte {
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&b, nil)
	for _, err := range []error{
		f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}),
		f.WriteSettingsAck(),
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("whole"), EndHeaders: true}),
		f.WriteData(1, false, bytes.Repeat([]byte("d"), 300)),
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true, EndHeaders: true}),
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte("in pieces"), PadLength: 7}),
		f.WriteContinuation(3, false, nil),
		f.WriteContinuation(3, false, []byte("more")),
		f.WriteContinuation(3, true, nil),
		f.WritePing(false, [8]byte{1}),
		f.WriteWindowUpdate(0, 1),
		f.WritePriority(5, http2.PriorityParam{}),
		f.WriteRSTStream(3, http2.ErrCodeCancel),
		f.WriteGoAway(0, http2.ErrCodeNo, []byte("bye")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// Guarantee: contract 4.5: however a client's bytes are split, the scanner knows after each
// piece whether a head is incomplete, as the frame headers that golang.org/x/net/http2 reads
// tell.
func FuzzHeadScanner(f *testing.F) {
	all := clientBytes(f)
	for _, piece := range []int{1, 2, 3, 7, 9, 100, 10_000} {
		f.Add(all[len(http2.ClientPreface):], []byte{byte(piece), byte(piece >> 8)})
	}
	f.Add([]byte("\x00\x00\x05\x09\x04\x00\x00\x00\x00abcde\x00\x00\x00\x01\x00\x00\x00\x00\x01\xff\xff\xff\x00"), []byte{3, 0, 1, 0})
	f.Fuzz(func(t *testing.T, stream, pieces []byte) {
		stream = append([]byte(http2.ClientPreface), stream...)
		if len(stream) > 5000 {
			return
		}
		var s headScanner
		wasOpen, begun := false, uint64(0)
		for sent := 0; sent < len(stream); {
			n := 1
			if len(pieces) >= 2 {
				n = max(int(pieces[0])|int(pieces[1])<<8, 1)
				pieces = append(pieces[2:], pieces[0], pieces[1])
			}
			n = min(n, len(stream)-sent)
			s.scan(stream[sent : sent+n])
			sent += n
			if want := headIsOpen(stream[:sent]); s.open != want {
				t.Fatalf("after %d bytes of %x: got open %v, want %v", sent, stream, s.open, want)
			}
			if s.open && !wasOpen && s.begun == begun {
				t.Fatalf("after %d bytes of %x: a head has begun that is not counted", sent, stream)
			}
			wasOpen, begun = s.open, s.begun
		}
	})
}

// Guarantee: a head that begins in the piece in which the one before it ends is another one,
// with a time of its own.
func TestNextHeadInSamePieceIsCounted(t *testing.T) {
	t.Parallel()
	var s headScanner
	s.scan([]byte(http2.ClientPreface + "\x00\x00\x02\x01\x04\x00\x00\x00\x01a"))
	first := s.begun
	s.scan([]byte("b\x00\x00\x02\x01\x04\x00\x00\x00\x03"))
	if !s.open || s.begun != first+1 {
		t.Errorf("got open %v and %d heads begun, want true and %d", s.open, s.begun, first+1)
	}
}

// Guarantee: following a client's heads allocates nothing.
func TestScannerAllocatesNothing(t *testing.T) {
	all := clientBytes(t)
	var s headScanner
	if n := testing.AllocsPerRun(100, func() {
		s = headScanner{}
		for i := range all {
			s.scan(all[i : i+1])
		}
	}); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}

// BenchmarkHeadScanner measures the scanner for each frame, read as net/http does: first the
// frame header, then the payload.
func BenchmarkHeadScanner(b *testing.B) {
	for name, kind := range map[string]byte{"DATA": 0, "HEADERS": 1} {
		b.Run(name, func(b *testing.B) {
			header, payload := []byte{0, 0x10, 0, kind, flagEndHeaders, 0, 0, 0, 1}, make([]byte, 0x1000)
			s := headScanner{preface: prefaceSize}
			b.ReportAllocs()
			for b.Loop() {
				s.scan(header)
				s.scan(payload)
			}
		})
	}
}
