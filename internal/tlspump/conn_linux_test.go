package tlspump

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// each runs a test with every version of TLS.
func each(t *testing.T, f func(t *testing.T, h *harness)) {
	for name, version := range versions {
		t.Run(name, func(t *testing.T) { f(t, start(t, version)) })
	}
}

// Guarantee: wherever the bytes of two records are split, all data that has arrived is read and none
// is lost, whatever the size of the reader's buffer.
func TestEverySplit(t *testing.T) {
	each(t, func(t *testing.T, h *harness) {
		for _, size := range []int{1, 3, 64} {
			for at := 0; ; at++ {
				records := h.seal("first", "second!")
				if at > len(records) {
					h.arrive(records)
					if got, err := h.pump(size); string(got) != "firstsecond!" || err != nil {
						t.Fatalf("got %q, error %v", got, err)
					}
					break
				}
				second := len(records)/2 - 1
				h.arrive(records[:at])
				got, err := h.pump(size)
				if err != nil || at >= second+1 && !strings.HasPrefix(string(got), "first") {
					t.Fatalf("split at %d of %d: got %q, error %v", at, len(records), got, err)
				}
				h.arrive(records[at:])
				rest, err := h.pump(size)
				if got = append(got, rest...); string(got) != "firstsecond!" || err != nil {
					t.Fatalf("split at %d of %d, buffer of %d: got %q, error %v", at, len(records), size, got, err)
				}
			}
		}
	})
}

// Guarantee: a record that is read whole needs one call.
func TestOneRecordNeedsOneCall(t *testing.T) {
	each(t, func(t *testing.T, h *harness) {
		b := make([]byte, 100)
		h.readNow(b) // notices that nothing is left of the handshake
		for range 3 {
			h.arrive(h.seal("request"))
			if r := h.readNow(b); r != (result{7, false, nil}) {
				t.Fatalf("got %+v, want 7 bytes and no more", r)
			}
			if r := h.readNow(b); r != (result{}) {
				t.Fatalf("got %+v, want nothing", r)
			}
		}
	})
}

// Guarantee: more is set while crypto/tls holds data, even if the caller stops in between and more
// arrives.
func TestHeldDataIsAnnounced(t *testing.T) {
	each(t, func(t *testing.T, h *harness) {
		b := make([]byte, 4)
		h.arrive(h.seal("abcdefg"))
		if r := h.readNow(b); r != (result{4, true, nil}) {
			t.Fatalf("got %+v, want 4 bytes and more", r)
		}
		h.arrive(h.seal("xyz"))
		if r := h.readNow(b); r.n != 3 || !r.more || r.err != nil {
			t.Fatalf("got %+v, want 3 bytes and more, since the socket was not read", r)
		}
		if got, err := h.pump(4); string(got) != "xyz" || err != nil {
			t.Fatalf("got %q, error %v", got, err)
		}
	})
}

// Guarantee: random messages in random pieces arrive whole when ReadNow and ordinary reads alternate.
func TestRandomPieces(t *testing.T) {
	each(t, func(t *testing.T, h *harness) {
		r := rand.New(rand.NewPCG(1, 2))
		var want, got []byte
		for range 200 {
			message := bytes.Repeat([]byte{byte(r.Uint32())}, 1+r.IntN(1<<r.IntN(16)))
			want = append(want, message...)
			records := h.seal(string(message))
			for len(records) > 0 {
				n := 1 + r.IntN(len(records))
				h.arrive(records[:n])
				records = records[n:]
				data, err := h.pump(1 + r.IntN(20000))
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, data...)
				if r.IntN(4) == 0 && len(records) > 0 { // the rest with ordinary calls
					h.arrive(records)
					records = nil
					b := make([]byte, len(want)-len(got))
					n, err := io.ReadFull(h.server, b)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, b[:n]...)
				}
			}
		}
		if rest, err := h.pump(10); err != nil || len(rest) > 0 || !bytes.Equal(got, want) {
			t.Errorf("got %d bytes, error %v; want the %d that were sent", len(got), err, len(want))
		}
	})
}

// Guarantee: the end of the stream is io.EOF at the boundary of a record, with or without an
// alert, and also if data comes with it; within a record it is io.ErrUnexpectedEOF.
func TestEnds(t *testing.T) {
	tests := map[string]struct {
		end  func(h *harness)
		data string
		want error
	}{
		"alert": {func(h *harness) { h.arrive(h.capture(func() { _ = h.client.CloseWrite() })) }, "", io.EOF},
		"data and alert": {func(h *harness) {
			h.arrive(h.capture(func() { _, _ = h.client.Write([]byte("last")); _ = h.client.CloseWrite() }))
		}, "last", io.EOF},
		"no alert":    {func(h *harness) { _ = h.wire.CloseWrite() }, "", io.EOF},
		"in a header": {func(h *harness) { h.arrive(h.seal("x")[:3]); _ = h.wire.CloseWrite() }, "", io.ErrUnexpectedEOF},
		"in a record": {func(h *harness) { h.arrive(h.seal("x")[:9]); _ = h.wire.CloseWrite() }, "", io.ErrUnexpectedEOF},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, h *harness) {
				tt.end(h)
				var got []byte
				var failed error
				b := make([]byte, 100)
				err := h.raw.Read(func(fd uintptr) bool {
					for {
						n, more, err := h.conn.ReadNow(h.server, fd, b)
						got = append(got, b[:n]...)
						if failed = err; err != nil || !more {
							return err != nil
						}
					}
				})
				if err != nil || string(got) != tt.data || !errors.Is(failed, tt.want) {
					t.Errorf("got %q, error %v (%v); want %q, error %v", got, failed, err, tt.data, tt.want)
				}
			})
		})
	}
}

// Guarantee: after a record that was changed in transit, an alert waits to be sent, and all further
// reads fail.
func TestChangedRecord(t *testing.T) {
	each(t, func(t *testing.T, h *harness) {
		record := h.seal("request")
		record[len(record)-1] ^= 1
		h.arrive(record)
		if _, err := h.pump(10); err == nil || !h.conn.Pending() {
			t.Fatalf("got error %v, alert waits: %v; want both", err, h.conn.Pending())
		}
		if all, err := h.conn.SendNow(); !all || err != nil {
			t.Fatal(all, err)
		}
		if _, err := h.client.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "bad record MAC") {
			t.Errorf("client got error %v, want the alert", err)
		}
		if r := h.readNow(make([]byte, 10)); r.err == nil {
			t.Errorf("got %+v, want an error again", r)
		}
	})
}

// Guarantee: data that is written between Hold and Unhold goes out together and in order, before
// later data.
func TestCollectedRecordsKeepTheirOrder(t *testing.T) {
	each(t, func(t *testing.T, h *harness) {
		big := strings.Repeat("b", 40<<10)
		h.conn.Hold()
		for _, m := range []string{"one ", big, " two"} {
			if _, err := h.server.Write([]byte(m)); err != nil {
				t.Fatal(err)
			}
		}
		h.conn.Unhold()
		if !h.conn.Pending() {
			t.Fatal("nothing is pending")
		}
		if _, err := h.server.Write([]byte(" three")); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len("one  two three")+len(big))
		if _, err := io.ReadFull(h.client, got); err != nil || string(got) != "one "+big+" two three" {
			t.Errorf("got %d bytes, error %v", len(got), err)
		}
		if h.conn.Pending() || h.conn.out != nil {
			t.Error("the buffer is still held")
		}
	})
}

// Guarantee: if the peer reads nothing, SendNow returns, Send waits until the write deadline, and
// every later write fails. The collected data is bounded.
func TestPeerThatTakesNothing(t *testing.T) {
	h := start(t, versions["TLS 1.3"])
	piece := make([]byte, 16<<10)
	h.conn.Hold()
	for {
		if _, err := h.server.Write(piece); err != nil {
			t.Fatal(err)
		}
		if all, err := h.conn.SendNow(); err != nil {
			t.Fatal(err)
		} else if !all {
			break
		}
	}
	_ = h.server.SetWriteDeadline(time.Unix(1, 0))
	var failed error
	for n := 0; failed == nil; n++ {
		if _, failed = h.server.Write(piece); n > maxHeld/len(piece) {
			t.Fatal("more than maxHeld is collected")
		}
	}
	if err := h.conn.Send(); err == nil {
		t.Error("Send succeeded after a failure")
	}
	h.conn.Unhold()
	if _, err := h.conn.Write(piece); err == nil {
		t.Error("Write succeeded after a failure")
	}
}

// Guarantee: nothing is lost or reordered when several goroutines write, with and without Hold, while
// another reads.
func TestConcurrentWrites(t *testing.T) {
	each(t, func(t *testing.T, h *harness) {
		const writers, messages = 4, 200
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				for i := range messages {
					if hold := i%3 == 0; hold {
						h.conn.Hold()
						_, _ = h.server.Write([]byte{byte(w), byte(i)})
						h.conn.Unhold()
						if sent, err := h.conn.SendNow(); err == nil && !sent {
							_ = h.conn.Send()
						}
						continue
					}
					_, _ = h.server.Write([]byte{byte(w), byte(i)})
				}
			})
		}
		all.Go(func() {
			for range messages {
				_, _ = h.client.Write([]byte("ping"))
			}
		})
		all.Go(func() {
			b, total := make([]byte, 64), 0
			_ = h.raw.Read(func(fd uintptr) bool {
				for {
					n, more, err := h.conn.ReadNow(h.server, fd, b)
					if h.conn.Pending() { // also what others wrote meanwhile
						_ = h.conn.Send()
					}
					if total += n; err != nil || total == 4*messages {
						return true
					}
					if !more {
						return false
					}
				}
			})
			if total != 4*messages {
				t.Errorf("read %d bytes, want %d", total, 4*messages)
			}
		})
		got := make([]byte, 2*writers*messages)
		if _, err := io.ReadFull(h.client, got); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		var next [writers]int
		for i := 0; i < len(got); i += 2 {
			if w := got[i]; int(got[i+1]) != next[w]%256 {
				t.Fatalf("message %d of writer %d came in place of %d", got[i+1], w, next[w])
			}
			next[got[i]]++
		}
	})
}
