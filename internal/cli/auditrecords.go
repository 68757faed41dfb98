package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// exportOverlap is how long before the last record another export has to begin after an export
// broke off. Records come in the order in which requests ended, so a record of a request that began
// some seconds earlier may be missing.
const exportOverlap = 10 * time.Second

// exportRecords exports the records of the server that match the filter.
func (o *auditExport) exportRecords(ctx context.Context, api *client.Client) (err error) {
	part := o.file + ".part"
	out := o.Out
	var file *os.File
	if o.file != "" {
		if file, err = createPart(o.file, part); err != nil {
			return err
		}
		out = file
	}
	x := o.exporter(out, o.format)
	x.limit = o.limit
	err = x.copy(func() (io.ReadCloser, error) { return api.OpenAuditExport(ctx, o.format, o.filter) })
	x.clear()
	if file != nil {
		err = errors.Join(err, file.Sync(), file.Close())
	}
	switch {
	case err == nil && file == nil:
		return nil
	case err == nil:
		return finishPart(part, o.file)
	case x.records == 0 && file != nil:
		return errors.Join(err, os.Remove(part))
	case x.records == 0:
		return err
	}
	where := ""
	if file != nil {
		where = " (in " + part + ")"
	}
	return fmt.Errorf("%w\nThe export is not complete: it has %s records%s. Export the rest with --since %s",
		err, terminal.Thousands(x.records), where, x.last().Add(-exportOverlap).UTC().Format(time.RFC3339))
}

// createPart creates the file part, to be renamed to file.
func createPart(file, part string) (*os.File, error) {
	if _, err := os.Lstat(file); err == nil {
		return nil, &os.PathError{Op: "create", Path: file, Err: os.ErrExist}
	}
	return os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// finishPart gives a complete file its name. If the file system has hard links, it does not replace
// another file.
func finishPart(part, file string) error {
	err := os.Link(part, file)
	if errors.Is(err, os.ErrExist) {
		return err
	}
	if err != nil {
		return os.Rename(part, file)
	}
	return os.Remove(part)
}

// exporter copies an export, and writes only whole lines.
type exporter struct {
	out      io.Writer
	limit    int       // most records to write; 0 for all
	header   bool      // the first line is no record
	progress io.Writer // a terminal; nil for none

	records int64
	bytes   int64
	line    []byte // the last line that was written
	began   time.Time
	shown   time.Time
}

// exportPiece is the size of the pieces in which an export is copied, in bytes.
const exportPiece = 256 << 10

// exporter returns an exporter of all records.
func (a *app) exporter(out io.Writer, format string) *exporter {
	x := &exporter{out: out, header: format == client.FormatCSV}
	if _, terminal := terminal.IsTerminal(a.Err); terminal {
		x.progress = a.Err
	}
	return x
}

// copy copies an export until its end, or until the limit is reached.
func (x *exporter) copy(open func() (io.ReadCloser, error)) error {
	x.began = time.Now()
	x.shown = x.began
	body, err := open()
	if err != nil {
		return err
	}
	defer body.Close()
	room := make([]byte, exportPiece)
	kept := 0 // bytes of an incomplete line at the beginning of room
	for {
		n, err := body.Read(room[kept:])
		whole := bytes.LastIndexByte(room[:kept+n], '\n') + 1
		if done, writeErr := x.write(room[:whole]); writeErr != nil || done {
			return writeErr
		}
		kept = copy(room, room[whole:kept+n])
		switch {
		case errors.Is(err, io.EOF) && kept > 0:
			return &client.UnreachableError{Err: io.ErrUnexpectedEOF}
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if kept == len(room) { // a record that is larger than the room
			room = append(room, make([]byte, len(room))...)
		}
		x.show()
	}
}

// write writes whole lines, and reports whether the limit is reached.
func (x *exporter) write(lines []byte) (done bool, err error) {
	if len(lines) == 0 {
		return false, nil
	}
	n := int64(bytes.Count(lines, []byte("\n")))
	if x.header {
		x.header = false
		n--
	}
	for excess := x.records + n - int64(x.limit); x.limit > 0 && excess > 0; excess-- {
		lines = lines[:bytes.LastIndexByte(lines[:len(lines)-1], '\n')+1]
		n--
	}
	if _, err := x.out.Write(lines); err != nil {
		return false, err
	}
	x.records += n
	x.bytes += int64(len(lines))
	if n > 0 {
		x.line = append(x.line[:0], lines[bytes.LastIndexByte(lines[:len(lines)-1], '\n')+1:]...)
	}
	return x.limit > 0 && x.records >= int64(x.limit), nil
}

// last returns the time of the last record that was written.
func (x *exporter) last() time.Time {
	text, _ := strings.CutPrefix(string(x.line), `{"time":"`)
	if end := strings.IndexAny(text, `",`); end >= 0 {
		text = text[:end]
	}
	t, _ := time.Parse(time.RFC3339Nano, text)
	return t
}

// show shows the progress, at most once a second.
func (x *exporter) show() {
	if x.progress == nil || time.Since(x.shown) < time.Second {
		return
	}
	x.shown = time.Now()
	rate := float64(x.records) / x.shown.Sub(x.began).Seconds()
	// A failed write to standard error cannot be reported.
	_, _ = fmt.Fprintf(x.progress, "\r\x1b[K%s records, %d MB, %s a second", terminal.Thousands(x.records), x.bytes>>20, terminal.Thousands(int64(rate)))
}

// clear removes the progress from the terminal.
func (x *exporter) clear() {
	if x.progress != nil && x.shown != x.began {
		_, _ = io.WriteString(x.progress, "\r\x1b[K")
	}
}
