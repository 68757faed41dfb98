package tlspump

import (
	"testing"

	"github.com/keygate/keygate/internal/tlspump/tlspumptest"
)

// Guarantee: however a KeyUpdate is split over records and receives, the reply to it is collected,
// and is sent only by the owner; the data around it is read; and later output uses the next key.
func TestKeyUpdate(t *testing.T) {
	for split := range len(tlspumptest.KeyUpdate) {
		h := start(t, versions["TLS 1.3"])
		in, out := h.keys.Layer(t, tlspumptest.FromClient), h.keys.Layer(t, tlspumptest.FromServer)
		stream := in.Seal(tlspumptest.Data, "a")
		if split > 0 {
			stream = append(stream, in.Seal(tlspumptest.Handshake, tlspumptest.KeyUpdate[:split])...)
		}
		stream = append(stream, in.Seal(tlspumptest.Handshake, tlspumptest.KeyUpdate[split:])...)
		in.Update()
		stream = append(stream, in.Seal(tlspumptest.Data, "b")...)
		var got []byte
		for _, b := range stream { // each byte by itself
			h.arrive([]byte{b})
			data, err := h.pump(10)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, data...)
		}
		if string(got) != "ab" || !h.conn.Pending() {
			t.Fatalf("split at %d: got %q, reply waits: %v; want ab and a reply", split, got, h.conn.Pending())
		}
		if all, err := h.conn.SendNow(); !all || err != nil {
			t.Fatal(all, err)
		}
		if kind, data := out.Open(h.wire); kind != tlspumptest.Handshake || string(data) != tlspumptest.KeyReply {
			t.Fatalf("got record %d %x, want the KeyUpdate", kind, data)
		}
		out.Update()
		if _, err := h.server.Write([]byte("response")); err != nil {
			t.Fatal(err)
		}
		if kind, data := out.Open(h.wire); kind != tlspumptest.Data || string(data) != "response" {
			t.Fatalf("got record %d %q, want the response", kind, data)
		}
	}
}

// Guarantee: replies to KeyUpdates and the records that another goroutine collects and sends go out
// in the right order.
func TestKeyUpdateBesideWrites(t *testing.T) {
	h := start(t, versions["TLS 1.3"])
	in, out := h.keys.Layer(t, tlspumptest.FromClient), h.keys.Layer(t, tlspumptest.FromServer)
	const updates, messages = 50, 200
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range messages {
			h.conn.Hold()
			_, _ = h.server.Write([]byte("x"))
			h.conn.Unhold()
			_ = h.conn.Send()
		}
	}()
	read := make(chan int, 1)
	go func() {
		b, total := make([]byte, 8), 0
		_ = h.raw.Read(func(fd uintptr) bool {
			for {
				n, more, err := h.conn.ReadNow(h.server, fd, b)
				if h.conn.Pending() {
					_ = h.conn.Send()
				}
				if total += n; err != nil || total == updates {
					return true
				}
				if !more {
					return false
				}
			}
		})
		read <- total
	}()
	for range updates {
		stream := in.Seal(tlspumptest.Handshake, tlspumptest.KeyUpdate)
		in.Update()
		if _, err := h.wire.Write(append(stream, in.Seal(tlspumptest.Data, ".")...)); err != nil {
			t.Fatal(err)
		}
	}
	replies, data := 0, 0
	for replies < updates || data < messages {
		kind, b := out.Open(h.wire)
		if kind == tlspumptest.Handshake {
			replies++
			out.Update()
			continue
		}
		data += len(b)
	}
	<-done
	if n := <-read; n != updates {
		t.Errorf("read %d bytes, want %d", n, updates)
	}
}

// Guarantee: crypto/tls ends the connection of a peer that sends KeyUpdates without data, while few
// replies wait.
func TestKeyUpdateFlood(t *testing.T) {
	h := start(t, versions["TLS 1.3"])
	in := h.keys.Layer(t, tlspumptest.FromClient)
	var stream []byte
	for range 100 {
		stream = append(stream, in.Seal(tlspumptest.Handshake, tlspumptest.KeyUpdate)...)
		in.Update()
	}
	h.arrive(stream)
	if _, err := h.pump(10); err == nil {
		t.Fatal("the flood was read")
	}
	if n := len(h.conn.held.data); n > 1<<10 {
		t.Errorf("%d bytes of replies wait", n)
	}
}
