package apikey_test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/apikey"
)

// Guarantee: every key string in a text is replaced by its prefix, however often it occurs
// and however it is percent-encoded. The rest of the text is unchanged.
func TestRedact(t *testing.T) {
	gateway, err := apikey.Generate(apikey.GatewayLevel, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	account, err := apikey.Generate(apikey.AccountLevel, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	user, err := apikey.Generate(apikey.UserLevel, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{gateway, account, user} {
		encoded := ""
		for i := range len(key) {
			encoded += fmt.Sprintf("%%%02x", key[i])
		}
		short := apikey.PrefixOf(key) + "***"
		for text, want := range map[string]string{
			key:                               short,
			"/a/" + key + "/b":                "/a/" + short + "/b",
			"kg" + key + "z/kgkg_" + key:      "kg" + short + "z/kgkg_" + short,
			"/" + encoded + "/%2F%zz%":        "/" + short + "/%2F%zz%",
			"/%6B" + key[1:]:                  "/" + short,
			"/" + key + "/" + encoded:         "/" + short + "/" + short,
			"/%41/" + key[:len(key)-1] + "-/": "/%41/" + key[:len(key)-1] + "-/",
			"/kg_/%6bg/%2":                    "/kg_/%6bg/%2",
			strings.ToUpper(key):              strings.ToUpper(key),
			"":                                "",
		} {
			if got := apikey.Redact(text); got != want {
				t.Errorf("Redact(%s) = %s, want %s", text, got, want)
			}
		}
	}
}
