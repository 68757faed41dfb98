//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/keygate/keygate/bench/keygate"
	"github.com/keygate/keygate/bench/stats"
	"github.com/keygate/keygate/client"
)

const (
	wrongDocuments = 20
	wrongSize      = 12e6             // bytes
	memoryReturned = 15 * time.Second // within which memory is given back
)

// documents measures the resident memory of the server while and after one account pushes many large
// documents that are refused.
func documents(ctx context.Context, o options, dir string, w io.Writer) (string, error) {
	t := stats.Table{Columns: []string{"Resident memory, MB", "Before", "Peak", "After", "Refused with 422", "with 429"}}
	for _, d := range []struct {
		name    string
		content []byte
	}{
		{"JSON", wrongDocument(`{"openapi":"3.1.0","info":{"title":"big","version":"1"},"x-big":[`, `{"type":"string","maxLength":%d},`, `0],"paths":{"wrong":{}}}`)},
		{"YAML", wrongDocument("openapi: 3.1.0\ninfo: {title: big, version: '1'}\nx-big:\n", "  - type: string\n    description: The length of a name, number %d of many\n", "paths:\n  wrong: {}\n")},
	} {
		own := filepath.Join(dir, d.name)
		if err := os.Mkdir(own, 0o700); err != nil {
			return "", err
		}
		row, err := pushWrong(ctx, o, own, d.content)
		if err != nil {
			return "", fmt.Errorf("%s: %w", d.name, err)
		}
		fmt.Fprintf(w, "documents: %s done\n", d.name)
		t.Add(append([]string{fmt.Sprintf("%d pushes of %.0f MB of %s at once", wrongDocuments, wrongSize/1e6, d.name)}, row...)...)
	}
	return t.String(), nil
}

// pushWrong returns the columns of the table for one document.
func pushWrong(ctx context.Context, o options, dir string, content []byte) ([]string, error) {
	s, err := keygate.Start(ctx, keygate.Config{Binary: o.binary, Dir: dir})
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	p, err := newPusher(ctx, s, 0, "http://127.0.0.1:1")
	if err != nil {
		return nil, err
	}
	before, err := s.Memory()
	if err != nil {
		return nil, err
	}
	statuses := make([]int, wrongDocuments)
	failures := make([]error, wrongDocuments)
	var running sync.WaitGroup
	for i := range wrongDocuments {
		running.Go(func() {
			_, err := p.client.PushSpec(ctx, p.gatewayID, content, false)
			var refused *client.Error
			if !errors.As(err, &refused) || refused.Status != 422 && refused.Status != 429 {
				failures[i] = fmt.Errorf("got %w, want a refusal with 422 or 429", err)
				return
			}
			statuses[i] = refused.Status
		})
	}
	running.Wait()
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	count := map[int]int{}
	for _, status := range statuses {
		count[status]++
	}
	pause := time.NewTimer(memoryReturned)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	peak, err := s.PeakMemory()
	if err != nil {
		return nil, err
	}
	after, err := s.Memory()
	if err != nil {
		return nil, err
	}
	megabytes := func(n int64) string { return fmt.Sprintf("%.0f", float64(n)/1e6) }
	return []string{megabytes(before), megabytes(peak), megabytes(after), fmt.Sprint(count[422]), fmt.Sprint(count[429])}, nil
}

// wrongDocument returns a document with a mistake at its end.
func wrongDocument(before, unit, after string) []byte {
	var b bytes.Buffer
	b.WriteString(before)
	for i := 0; b.Len() < wrongSize; i++ {
		fmt.Fprintf(&b, unit, i)
	}
	b.WriteString(after)
	return b.Bytes()
}
