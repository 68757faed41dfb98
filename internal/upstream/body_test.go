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

// The time to the head runs from the last progress of the upload, and not at
// all once the head is there (contract, 3.3).
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		w := startWatch(time.Minute, cancel)
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
		w := startWatch(time.Minute, cancel)
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

// A body that the exchange has closed is not read again, and what it fails with
// afterwards is nobody's error.
func TestRequestBodyClosed(t *testing.T) {
	_, cancel := context.WithCancelCause(t.Context())
	w := startWatch(time.Hour, cancel)
	defer w.stop()
	b := &requestBody{body: io.NopCloser(strings.NewReader("text")), watch: w}
	_ = b.Close()
	if n, err := b.Read(make([]byte, 8)); n != 0 || !errors.Is(err, errBodyClosed) {
		t.Errorf("read %d bytes, %v after Close", n, err)
	}
	if err := b.failed(); err != nil {
		t.Errorf("failed: %v", err)
	}
}
