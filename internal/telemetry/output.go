package telemetry

import (
	"bytes"
	"io"
	"sync/atomic"
	"time"
)

// Output is where a log is written. A line that cannot be written is lost and counted, and an error
// never reaches the logger: the reader of a pipe may be gone, or a disk full. If a line is not taken in
// time, further lines are lost until it is, so that no work waits for the reader of a log. It is safe
// for concurrent use.
type Output struct {
	to     io.Writer
	free   chan struct{} // has an element unless a line is being written
	stuck  atomic.Bool   // the line being written was not taken in time
	lost   atomic.Uint64
	broken bool // the last line was written in part; only used by whoever took the element of free
}

// outputTimeout is how long a logger waits for a line to be taken.
const outputTimeout = 250 * time.Millisecond

// NewOutput returns an Output that writes to w.
func NewOutput(w io.Writer) *Output {
	o := &Output{to: w, free: make(chan struct{}, 1)}
	o.free <- struct{}{}
	return o
}

// Lost returns the number of lines that were lost.
func (o *Output) Lost() uint64 { return o.lost.Load() }

// Fd returns the descriptor of the file that is written to, or an invalid descriptor. NewLogger uses
// it to find out whether the file is a terminal.
func (o *Output) Fd() uintptr {
	if f, ok := o.to.(interface{ Fd() uintptr }); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}

// Write writes the line p. It returns when the line is written or lost, or after a quarter of a second in
// which the output has not taken it; further lines are lost until it does. It never returns an error.
func (o *Output) Write(p []byte) (int, error) {
	if o.stuck.Load() {
		select {
		case <-o.free:
		default:
			o.lost.Add(1)
			return len(p), nil
		}
	} else if !o.wait(o.free) {
		o.lost.Add(1)
		return len(p), nil
	}
	line, done := bytes.Clone(p), make(chan struct{})
	go func() { // it ends when the output takes the line, at the latest with the process
		o.write(line)
		o.stuck.Store(false)
		close(done)
		o.free <- struct{}{}
	}()
	o.wait(done)
	return len(p), nil
}

// wait waits for an event, and reports whether it came in time.
func (o *Output) wait(event <-chan struct{}) bool {
	late := time.NewTimer(outputTimeout)
	defer late.Stop()
	select {
	case <-event:
		return true
	case <-late.C:
		o.stuck.Store(true)
		return false
	}
}

// write writes a line. If the last line was written only in part, it first ends that line.
func (o *Output) write(line []byte) {
	if o.broken {
		line = append([]byte{'\n'}, line...)
	}
	n, err := o.to.Write(line)
	if err == nil {
		o.broken = false
		return
	}
	o.lost.Add(1)
	if n > 0 {
		o.broken = line[n-1] != '\n'
	}
}
