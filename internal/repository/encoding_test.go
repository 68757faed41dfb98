package repository_test

import (
	"path/filepath"
	"testing"

	"github.com/keygate/keygate/internal/repository"
)

// Guarantee: the author and message of a commit keep their letters, whether its header names their
// encoding or not.
func TestCommitsKeepTheirLetters(t *testing.T) {
	t.Parallel()
	const latin, utf8Text = "Andr\xe9 Stra\xdfe", "André Straße"
	for _, c := range []struct{ name, encoding, author, message, wantAuthor, wantMessage string }{
		{"UTF-8", "", utf8Text, "prix: 5 €", utf8Text, "prix: 5 €"},
		{"Latin-1 with its name", "ISO-8859-1", latin, "caf\xe9", utf8Text, "café"},
		{"Latin-1 that could be UTF-8", "latin1", "A\xc3\xa9", "x", "AÃ©", "x"},
		{"Windows-1252 with its name", "cp1252", latin, "5 \x80", utf8Text, "5 €"},
		{"Latin-1 without its name", "", latin, "caf\xe9", utf8Text, "café"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			r := newRepo(t, filepath.Join(root, "r"))
			r.write("a.yaml", "routes: []\n")
			r.git("add", ".")
			if c.encoding != "" {
				r.git("config", "i18n.commitEncoding", c.encoding)
			}
			r.git("-c", "user.name="+c.author, "commit", "-q", "-m", c.message, "--author="+c.author+" <a@example.com>")
			f, err := read(t, client(t, repository.Config{AllowFile: root}), repository.Source{URL: "file://" + r.dir, Path: "a.yaml"})
			if err != nil {
				t.Fatal(err)
			}
			if want := c.wantAuthor + " <a@example.com>"; f.Author != want || f.Message != c.wantMessage {
				t.Errorf("got %q, %q; want %q, %q", f.Author, f.Message, want, c.wantMessage)
			}
		})
	}
}
