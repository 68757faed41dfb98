package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"hash/fnv"
	"strconv"
)

// The search index of keys is an inverted index: for each term, the keys that have it, newest
// first. The terms of a key are the parts of its name of one to three bytes, in lower case (n-grams), and
// everything else that a list can be filtered by. Every term begins with the account, so the keys
// of one account cost the others nothing.
//
// A search for up to three bytes is one term. A longer one intersects the terms of its trigrams,
// which finds all keys that it selects and perhaps some others, so Keys checks the rows of the keys
// that it finds.
const (
	gramTerm    = 'n' // a part of the name of 1 to maxGram bytes
	startTerm   = 'p' // the first 1 to maxStart bytes of the prefix
	nameTerm    = 'e' // a hash of the whole name
	ownerTerm   = 'o' // a hash of the owner
	gatewayTerm = 'g' // a hash of the gateway's identifier
	levelTerm   = 'l'
	phaseTerm   = 's'
)

const (
	maxGram  = 3
	maxStart = 5 // "kg_" and two random characters
	// maxTrigrams is how many trigrams of a query are looked up. More of them hardly
	// exclude further keys.
	maxTrigrams = 16
)

// What one transaction of IndexKeys indexes at most: so many keys, and so many bytes of their
// names, but at least one key. It takes a few milliseconds, for which changes wait.
const (
	indexRows  = 256
	indexBytes = 4 << 10
)

// termWriter builds terms of one account. They consist of ASCII letters and digits.
type termWriter struct {
	account string // a hash; two accounts that share it are told apart by the rows of their keys
	text    []byte
	before  string // written before each term
	after   string // and after it
}

func newTermWriter(accountID string) *termWriter {
	return &termWriter{account: hashTerm(accountID, 40), after: " "}
}

// hashTerm returns a hash of s as hexadecimal digits.
func hashTerm(s string, bits int) string {
	h := fnv.New64a()
	h.Write([]byte(s))
	return strconv.FormatUint(h.Sum64()>>(64-bits), 16)
}

func (w *termWriter) add(kind byte, value string) {
	w.text = append(w.text, w.before...)
	w.text = append(w.text, w.account...)
	w.text = append(append(w.text, kind), value...)
	w.text = append(w.text, w.after...)
}

// bytes adds a term whose value is any bytes.
func (w *termWriter) bytes(kind byte, value string) {
	w.text = append(w.text, w.before...)
	w.text = append(w.text, w.account...)
	w.text = hex.AppendEncode(append(w.text, kind), []byte(value))
	w.text = append(w.text, w.after...)
}

func (w *termWriter) name(s string)      { w.add(nameTerm, hashTerm(s, 16)) }
func (w *termWriter) owner(s string)     { w.add(ownerTerm, hashTerm(s, 32)) }
func (w *termWriter) gateway(s string)   { w.add(gatewayTerm, hashTerm(s, 32)) }
func (w *termWriter) level(number int64) { w.add(levelTerm, strconv.FormatInt(number, 10)) }
func (w *termWriter) phase(phase int64)  { w.add(phaseTerm, strconv.FormatInt(phase, 10)) }
func (w *termWriter) start(s string)     { w.bytes(startTerm, s[:min(len(s), maxStart)]) }

// indexedKey is what the terms of a key are made of.
type indexedKey struct {
	n              int64
	id, accountID  string
	name, prefix   string
	level, phase   int64
	gateway, owner string
}

// terms returns the document of k.
func (k *indexedKey) terms() string {
	w := newTermWriter(k.accountID)
	name := lowerASCII(k.name)
	seen := make(map[string]bool, maxGram*len(name))
	for size := 1; size <= maxGram; size++ {
		for i := range max(0, len(name)-size+1) {
			if gram := name[i : i+size]; !seen[gram] {
				seen[gram] = true
				w.bytes(gramTerm, gram)
			}
		}
	}
	for size := 1; size <= min(maxStart, len(k.prefix)); size++ {
		w.start(k.prefix[:size])
	}
	w.name(k.name)
	w.level(k.level)
	w.phase(k.phase)
	if k.gateway != "" {
		w.gateway(k.gateway)
	}
	if k.owner != "" {
		w.owner(k.owner)
	}
	return string(w.text)
}

// lowerASCII returns s with its ASCII letters in lower case, which is what LIKE compares.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// trigrams returns the parts of query that the index is asked for: query itself if it is short,
// and otherwise at most maxTrigrams of its trigrams, spread over all of it.
func trigrams(query string) []string {
	query = lowerASCII(query)
	if len(query) <= maxGram {
		return []string{query}
	}
	var grams []string
	seen := map[string]bool{}
	last := len(query) - maxGram // where the last trigram begins
	for i := range min(last+1, maxTrigrams) {
		at := i
		if last >= maxTrigrams {
			at = i * last / (maxTrigrams - 1)
		}
		if gram := query[at : at+maxGram]; !seen[gram] {
			seen[gram] = true
			grams = append(grams, gram)
		}
	}
	return grams
}

// KeysToIndex implements control.KeyReader.
func (t *readTx) KeysToIndex(ctx context.Context, limit int) (waiting int, err error) {
	err = t.rows(ctx, "count keys to index", `SELECT count(*) FROM (SELECT 1 FROM keys_unindexed INDEXED BY keys_to_index WHERE backdated = 0 LIMIT ?+0)`,
		[]any{rowLimit(limit)}, func(r *sql.Rows) error { return r.Scan(&waiting) })
	return waiting, err
}

// IndexKeys implements control.KeyStore.
func (t *tx) IndexKeys(ctx context.Context, limit int) (done int, err error) {
	keys, err := t.keysToIndex(ctx, min(rowLimit(limit), indexRows))
	if err != nil {
		return 0, err
	}
	for i := range keys {
		k := &keys[i]
		if _, err := t.exec(ctx, "index key", `INSERT OR REPLACE INTO key_terms (rowid, terms) VALUES (?, ?)`, k.n, k.terms()); err != nil {
			return 0, err
		}
		if _, err := t.exec(ctx, "mark key as indexed", `DELETE FROM keys_unindexed WHERE account_id = ? AND key_id = ?`, k.accountID, k.id); err != nil {
			return 0, err
		}
	}
	return len(keys), nil
}

// keysToIndex returns up to limit keys for one transaction, in the order of the index's documents,
// which is the cheapest to add.
func (t *tx) keysToIndex(ctx context.Context, limit int) (keys []indexedKey, err error) {
	size := 0
	err = t.rows(ctx, "find keys to index", `SELECT k.n, k.id, k.account_id, k.name, k.prefix, k.level, k.phase, k.gateway_id, k.owner
		FROM keys_unindexed u INDEXED BY keys_to_index CROSS JOIN keys k ON k.n = u.n WHERE u.backdated = 0 ORDER BY u.n LIMIT ?+0`,
		[]any{limit}, func(r *sql.Rows) error {
			var k indexedKey
			var gateway, owner sql.NullString
			if err := r.Scan(&k.n, &k.id, &k.accountID, &k.name, &k.prefix, &k.level, &k.phase, &gateway, &owner); err != nil {
				return err
			}
			k.gateway, k.owner = gateway.String, owner.String
			if size += len(k.name); size <= indexBytes || len(keys) == 0 {
				keys = append(keys, k)
			}
			return nil
		})
	return keys, err
}
