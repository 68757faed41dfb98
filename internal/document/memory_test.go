package document_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/keygatetest/needtest"
)

// peakLive returns how many bytes f adds to the memory in use, at most. If that is more than most,
// it runs f again, up to five times, and returns the least: a garbage collection also counts memory
// that is allocated while it runs, which is much on a busy machine.
func peakLive(most int, f func()) int {
	least := peakOnce(f)
	for range 4 {
		if least <= most {
			break
		}
		least = min(least, peakOnce(f))
	}
	return least
}

// peakOnce measures after each garbage collection, which it makes happen for every few percent of
// growth.
func peakOnce(f func()) int {
	const live = "/gc/heap/live:bytes"
	read := func() int {
		sample := []metrics.Sample{{Name: live}}
		metrics.Read(sample)
		return int(sample[0].Value.Uint64())
	}
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	runtime.GC()
	before := read()
	var peak atomic.Int64
	var done atomic.Bool
	type sentinel struct{ _ [16]byte }
	var watch func()
	watch = func() {
		runtime.SetFinalizer(&sentinel{}, func(*sentinel) {
			peak.Store(max(peak.Load(), int64(read())))
			if !done.Load() {
				watch()
			}
		})
	}
	watch()
	f()
	done.Store(true)
	return max(int(peak.Load()), read()) - before
}

// hostile are texts from which a parser builds much more than their size. In each, the middle part
// is repeated between the first and the last.
var hostile = map[string][3]string{
	"JSON items":           {"[", "0,", "0]"},
	"JSON empty lists":     {"[", "[],", "0]"},
	"JSON empty mappings":  {"[", "{},", "0]"},
	"JSON nested lists":    {"[", "[[0]],", "0]"},
	"JSON members":         {"[", `{"a":0},`, "0]"},
	"JSON empty strings":   {"[", `"",`, "0]"},
	"JSON escapes":         {"[", `"\n",`, "0]"},
	"items":                {"[", "a,", "]"},
	"empty quotes":         {"[", "'',", "]"},
	"names without values": {"{", "a%d,", "}"},
	"empty values":         {"{", "a%d:,", "}"},
	"pairs in a list":      {"[", "a: b,", "]"},
	"questions in a list":  {"[", "? a,", "]"},
	"lists in a list":      {"[", "[],", "]"},
	"mappings in a list":   {"[", "{},", "]"},
	"braces":               {"[", "{a},", "]"},
	"block":                {"", "- a\n", ""},
	"block of nulls":       {"", "-\n", ""},
	"block in block":       {"", "- - - a\n", ""},
	"block of questions":   {"", "- ? a\n", ""},
	"line separators":      {"", "-\u0085", ""},
	"names":                {"", "a%d: b\n", ""},
	"questions":            {"", "? a%d\n", ""},
	"anchors":              {"", "- &a%d b\n", ""},
	"aliases":              {"- &a b\n", "- *a\n", ""},
	"comments":             {"- a\n", "#\n\n", "- b\n"},
	"comments of items":    {"", "- a #\n", ""},
	"tags":                 {"", "- !!a b\n", ""},
	"long tags":            {"%TAG ! tag:" + strings.Repeat("a", 1000) + ",\n---\n", "- !a b\n", ""},
	"one long string":      {"a: \"", "bcd ", "\"\n"},
	"merges":               {"a: &a {" + strings.Repeat("b: c, ", 1) + manyMembers + "}\nb:\n", "- <<: *a\n", ""},
}

var manyMembers = func() string {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "m%d: 0, ", i)
	}
	return b.String()
}()

// fullest returns the text of fill with the least blank part that is within the budget.
func fullest(size int, parts [3]string) []byte {
	low, high := 2, 102 // percent
	for high-low > 3 {
		if middle := (low + high) / 2; document.WithinBudget(string(fill(size, middle, parts))) {
			low = middle
		} else {
			high = middle
		}
	}
	return fill(size, low, parts)
}

// fill returns a text of about size bytes: the given parts, and blanks for the rest. A unit may
// have a %d for a number.
func fill(size, percent int, parts [3]string) []byte {
	var b bytes.Buffer
	b.WriteString(parts[0])
	before, after, numbered := strings.Cut(parts[1], "%d")
	for i := 0; b.Len() < size*percent/100-len(parts[2]); i++ {
		b.WriteString(before)
		if numbered {
			b.WriteString(strconv.Itoa(i))
		}
		b.WriteString(after)
	}
	b.WriteString(parts[2])
	for b.Len() < size {
		b.WriteString("          \n")
	}
	return b.Bytes()
}

// Guarantee: whatever a document has in it, reading it takes at most 20 times its size of
// memory, or it is refused with line and column.
func TestMemoryOfADocumentIsBounded(t *testing.T) {
	if hostileSize < 16<<20 {
		t.Skip("the race detector takes memory of its own: make test-memory runs this without it")
	}
	const size = document.MinBudget/document.Budget + 1000
	texts := map[string][]byte{}
	var units []string
	for name, parts := range hostile {
		texts[name] = fullest(size, parts)
		if strings.HasSuffix(parts[1], ",") && !strings.HasPrefix(name, "JSON") {
			units = append(units, strings.ReplaceAll(parts[1], "%d", "x"))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 2 {
		var unit strings.Builder
		for range 1000 {
			unit.WriteString(units[random.IntN(len(units))])
		}
		texts[fmt.Sprintf("mixture %d", i)] = fullest(size, [3]string{"[", unit.String(), "]"})
	}
	accepted := 0
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			var err error
			var n *document.Node
			text := bytes.Clone(text)
			const rest = 512 << 10 // of the process
			most := document.Budget*len(text) + rest
			peak := len(text) + peakLive(most-len(text), func() {
				n = nil // of a run before
				n, err = document.Parse(text)
			})
			if peak > most {
				t.Errorf("reading %d bytes took %d, %.1f times as much; want at most %d times (error: %v)", len(text), peak, float64(peak)/float64(len(text)), document.Budget, err)
			}
			switch {
			case err == nil:
				accepted++
			case !strings.Contains(err.Error(), "line "):
				t.Errorf("got %v, want line and column", err)
			}
			if testing.Verbose() {
				t.Logf("%.1f times, error: %v", float64(peak)/float64(len(text)), err)
			}
			runtime.KeepAlive(n)
			runtime.KeepAlive(text)
		})
	}
	if accepted < len(texts)*3/4 {
		t.Errorf("only %d of %d documents were read, want most of them", accepted, len(texts))
	}
}

// Guarantee: large documents as people write them are read within the bound, with room to spare.
func TestMemoryOfRealDocuments(t *testing.T) {
	if hostileSize < 16<<20 {
		t.Skip("the race detector takes memory of its own: make test-memory runs this without it")
	}
	for _, name := range []string{"github.json.gz", "openai.yaml.gz"} {
		t.Run(name, func(t *testing.T) {
			text := realDocument(t, name)
			most := document.Budget * len(text) * 3 / 4
			peak := len(text) + peakLive(most-len(text), func() {
				if _, err := document.Parse(text); err != nil {
					t.Error(err)
				}
			})
			ratio := float64(peak) / float64(len(text))
			t.Logf("%d bytes: %.1f times as much memory", len(text), ratio)
			if peak > most {
				t.Errorf("got %.1f times the size, want at most three quarters of %d", ratio, document.Budget)
			}
		})
	}
}

func realDocument(t *testing.T, name string) []byte {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		packed, err := os.ReadFile(filepath.Join(dir, "shared", "data", "specs", name))
		if err == nil {
			z, err := gzip.NewReader(bytes.NewReader(packed))
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(z)
			if err != nil {
				t.Fatal(err)
			}
			return content
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			needtest.Missing(t, "shared/data/specs/%s is missing: it belongs beside the tree, not in it", name)
		}
		dir = parent
	}
}

// Guarantee: a document that would take too much memory is refused at the position at which it
// does, and the error says what to do.
func TestDocumentWithTooManyValues(t *testing.T) {
	const size = document.MinBudget / document.Budget * 2
	for name, parts := range map[string][3]string{"JSON": {"[", "0,\n", "0]"}, "YAML": {"", "- a\n", ""}} {
		_, err := document.Parse(fill(size, 100, parts))
		if err == nil || !strings.Contains(err.Error(), "too many values for its size") || strings.Contains(err.Error(), "line 1,") {
			t.Errorf("%s: got %v, want an error further down in the text", name, err)
		}
	}
}
