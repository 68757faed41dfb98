package storetest

import (
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"
)

// NextSchema returns the migrations of a binary, followed by a made-up migration with these statements, and the number
// of the schema that it leads to.
func NextSchema(t *testing.T, files fs.FS, statements string) (_ fs.FS, number int64) {
	t.Helper()
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	all := fstest.MapFS{}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = &fstest.MapFile{Data: text}
		var n int64
		if _, err := fmt.Sscanf(name, "%d_", &n); err != nil {
			t.Fatal(err)
		}
		number = max(number, n+1)
	}
	all[fmt.Sprintf("%05d_next.sql", number)] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + statements + "\n")}
	return all, number
}
