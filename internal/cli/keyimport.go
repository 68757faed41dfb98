package cli

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/fault"
)

// keysPerImport is how many keys one call imports, all or none.
const keysPerImport = 1000

func newKeysImport(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Import keys of another gateway, so that callers need no new ones",
		Long: "Import keys of another gateway from a file, or from standard input for -. The file is JSON:\n" +
			`{"keys": [{"key": "…", "name": "mobile", "scope": "read", "owner": "customer-42"}, …]}` + "\n" +
			"Each key has its string as \"key\", or the SHA-256 of that as \"sha256\", and the fields of POST /v1/keys/import.\n" +
			"This command sends only hashes. It imports up to 1,000 keys together, all or none, and a longer file in several parts.",
		Example: "  keygate keys import keys.json\n  jq '{keys: …}' export.json | keygate keys import -",
		Args:    atMost(1),
		RunE: func(c *cobra.Command, args []string) error {
			name, err := fileArgument(args)
			if err != nil {
				return err
			}
			return a.importKeys(c.Context(), name)
		},
	}
}

// importKeys imports the keys of a file, and prints them.
func (a *app) importKeys(ctx context.Context, name string) error {
	content, err := a.ReadInput(name)
	if err != nil {
		return fmt.Errorf("read the keys: %w", err)
	}
	keys, err := readKeys(content)
	if err != nil {
		return usagef("%s: %s", newDocumentFile(name, nil).name, err)
	}
	weak, unknown, err := hashKeys(keys)
	if err != nil {
		return err
	}
	api, err := a.connect()
	if err != nil {
		return err
	}
	done := 0
	var made []client.ImportedKey
	for some := range slices.Chunk(keys, keysPerImport) {
		imported, err := api.ImportKeys(ctx, client.ImportKeysRequest{Keys: some})
		if err != nil {
			return a.importFailed(done, err)
		}
		done += len(some)
		made = append(made, imported...)
	}
	return a.printImported(made, weak, unknown)
}

// readKeys reads the file of an import, in which every field must be known.
func readKeys(content []byte) ([]client.ImportKeyRequest, error) {
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(content, []byte("\ufeff"))))
	d.DisallowUnknownFields()
	var in client.ImportKeysRequest
	if err := d.Decode(&in); err != nil {
		return nil, errors.New(`must be JSON of the form {"keys": [{"key": "…", "name": "…", "scope": "read"}]}: ` + withoutValues(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("must have one JSON object and nothing behind it")
	}
	if len(in.Keys) == 0 {
		return nil, errors.New("has no keys")
	}
	return in.Keys, nil
}

// withoutValues returns the text of an error of decoding without the value that is wrong, which may be a key.
func withoutValues(err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return "the field " + wrong.Field + " has another type"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// hashKeys replaces the strings of the keys by their hashes, after it has checked them. weak is the number of keys that
// are so short that the server would not take them in clear, and unknown that of the keys of which only hashes are known.
func hashKeys(keys []client.ImportKeyRequest) (weak, unknown int, err error) {
	var errs []error
	for i := range keys {
		k := &keys[i]
		if k.Key == nil {
			unknown++
			continue
		}
		if k.Sha256 != nil { // the server says what is wrong
			continue
		}
		if err := apikey.CheckImported(fmt.Sprintf("keys[%d].key", i), *k.Key); err != nil {
			errs = append(errs, err)
			continue
		}
		prefix := ""
		if k.KeyPrefix != nil {
			prefix = *k.KeyPrefix
		}
		if len(*k.Key) < apikey.MinImportedClear {
			weak++
		}
		if prefix, err := apikey.ImportedPrefix(*k.Key, prefix); err != nil {
			errs = append(errs, fault.Prefixed(fmt.Sprintf("keys[%d]", i), err))
		} else if len(*k.Key) >= apikey.MinImportedClear {
			k.KeyPrefix = &prefix
		}
		digest := apikey.DigestOf(*k.Key)
		hash := hex.EncodeToString(digest[:])
		k.Key, k.Sha256 = nil, &hash
	}
	return weak, unknown, fault.Join(errs...)
}

// importFailed returns the error of an import of which done keys are imported already.
func (a *app) importFailed(done int, err error) error {
	if done > 0 {
		a.Say("The first %d keys of the file are imported. Remove them from the file before you repeat the import. In the errors, keys[0] is the key behind them.", done)
	}
	return err
}

// printImported prints the keys, and what is to be known of their strength: those that were hashed here are known to be
// long or short, and those that came as hashes are not.
func (a *app) printImported(made []client.ImportedKey, weak, unknown int) error {
	err := terminal.PrintList(a.Console, 0, func(yield func(client.ImportedKey, error) bool) {
		for _, k := range made {
			if !yield(k, nil) {
				return
			}
		}
	}, terminal.Listing[client.ImportedKey]{Columns: keyColumns(), Row: func(k *client.ImportedKey) []string { return a.keyRow(&k.Key) }})
	if err != nil {
		return err
	}
	var warnings []string
	for i := range made {
		for _, w := range made[i].Warnings {
			if w != apikey.StrengthUnknown && !slices.Contains(warnings, w) {
				warnings = append(warnings, w)
			}
		}
	}
	if weak > 0 {
		warnings = append(warnings, fmt.Sprintf("%s fewer than %d characters, so that others may guess them: replace them soon (keygate keys rotate)", numberHave(weak), apikey.MinImportedClear))
	}
	if unknown > 0 {
		warnings = append(warnings, fmt.Sprintf("%s only a hash in the file, so that nobody knows whether they are long enough: replace those that may be guessed (keygate keys rotate)", numberHave(unknown)))
	}
	a.printWarnings(warnings)
	a.Say("Imported %s.", terminal.NumberOf(int64(len(made)), "key", "keys"))
	return nil
}

func numberHave(n int) string {
	if n == 1 {
		return "1 key has"
	}
	return fmt.Sprintf("%d keys have", n)
}
