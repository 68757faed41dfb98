package upstream

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Guarantee: the time to the head runs from the last progress of the upload, and not at all
// once the head is there (contract, 3.3).
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		w := startHeadTimer(time.Minute, cancel)
		for range 10 {
			<-time.After(59 * time.Second)
			w.progress()
		}
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatal("an upload that progresses was cut")
		}
		<-time.After(59 * time.Second)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatal("cut before the time")
		}
		<-time.After(time.Second)
		synctest.Wait()
		if !errors.Is(context.Cause(ctx), errHeadTimeout) {
			t.Fatalf("not cut after the time: %v", context.Cause(ctx))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		w := startHeadTimer(time.Minute, cancel)
		<-time.After(59 * time.Second)
		w.stop()
		w.progress()
		<-time.After(time.Hour)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatal("a stream was cut after its head")
		}
	})
}

// Guarantee: A body that the exchange has closed is not read again, and what it fails with
// afterwards is nobody's error. Until the exchange is over, closing it before anything was
// read is not the last word: net/http may come back to it.
func TestRequestBodyClosed(t *testing.T) {
	_, cancel := context.WithCancelCause(t.Context())
	w := startHeadTimer(time.Hour, cancel)
	defer w.stop()
	part := make([]byte, 1)
	for name, c := range map[string]struct {
		course    func(*requestBody)
		untouched bool
	}{
		"closed, then over":  {func(b *requestBody) { _ = b.Close() }, true},
		"over, then closed":  {func(b *requestBody) { b.end(nil); _ = b.Close() }, true},
		"read, then closed":  {func(b *requestBody) { _, _ = b.Read(part); _ = b.Close() }, false},
		"failed":             {func(b *requestBody) { b.end(io.ErrUnexpectedEOF) }, true},
		"closed, then taken": {func(b *requestBody) { _ = b.Close(); _, _ = b.Read(part); _ = b.Close() }, false},
	} {
		b := &requestBody{body: io.NopCloser(strings.NewReader("text")), timer: w}
		c.course(b)
		if got := b.end(nil); got != c.untouched {
			t.Errorf("%s: untouched is %v", name, got)
		}
		if n, err := b.Read(part); n != 0 || !errors.Is(err, errBodyClosed) {
			t.Errorf("%s: read %d bytes, %v", name, n, err)
		}
		if err := b.failed(); err != nil {
			t.Errorf("%s: failed: %v", name, err)
		}
	}
	b := &requestBody{body: io.NopCloser(strings.NewReader("text")), timer: w}
	_ = b.Close()
	if text, err := io.ReadAll(b); err != nil || string(text) != "text" {
		t.Errorf("closed and taken again: %q, %v", text, err)
	}
}
