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

// Guarantee: the timeout for the head of the response restarts with each progress of the
// upload, and ends with the head (contract, 4.4).
func TestHeadTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		w := startHeadTimer(time.Minute, cancel)
		for range 10 {
			<-time.After(59 * time.Second)
			w.progress()
		}
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatal("an upload that makes progress was canceled")
		}
		<-time.After(59 * time.Second)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatal("canceled before the timeout")
		}
		<-time.After(time.Second)
		synctest.Wait()
		if !errors.Is(context.Cause(ctx), errHeadTimeout) {
			t.Fatalf("after the timeout: got cause %v, want errHeadTimeout", context.Cause(ctx))
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
			t.Fatal("a stream was canceled after its head")
		}
	})
}

// Guarantee: a body is not read after the exchange has closed it, and its later errors are
// not reported. Until the exchange is over, a body that is closed unread can be read again:
// net/http may retry with it.
func TestRequestBodyClosed(t *testing.T) {
	_, cancel := context.WithCancelCause(t.Context())
	w := startHeadTimer(time.Hour, cancel)
	defer w.stop()
	part := make([]byte, 1)
	for name, c := range map[string]struct {
		use       func(*requestBody)
		untouched bool
	}{
		"closed, then over":  {func(b *requestBody) { _ = b.Close() }, true},
		"over, then closed":  {func(b *requestBody) { b.end(nil); _ = b.Close() }, true},
		"read, then closed":  {func(b *requestBody) { _, _ = b.Read(part); _ = b.Close() }, false},
		"failed":             {func(b *requestBody) { b.end(io.ErrUnexpectedEOF) }, true},
		"closed, then taken": {func(b *requestBody) { _ = b.Close(); _, _ = b.Read(part); _ = b.Close() }, false},
	} {
		b := &requestBody{body: io.NopCloser(strings.NewReader("text")), timer: w}
		c.use(b)
		if got := b.end(nil); got != c.untouched {
			t.Errorf("%s: end returned %v, want %v", name, got, c.untouched)
		}
		if n, err := b.Read(part); n != 0 || !errors.Is(err, errBodyClosed) {
			t.Errorf("%s: read %d bytes, %v, want errBodyClosed", name, n, err)
		}
		if err := b.failed(); err != nil {
			t.Errorf("%s: failed returned %v, want nil", name, err)
		}
	}
	b := &requestBody{body: io.NopCloser(strings.NewReader("text")), timer: w}
	_ = b.Close()
	if text, err := io.ReadAll(b); err != nil || string(text) != "text" {
		t.Errorf("closed and read again: got %q, %v, want the text", text, err)
	}
}
