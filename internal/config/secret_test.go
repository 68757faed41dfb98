package config_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/config"
)

// validAdminKey is the string of a key that no server has.
const validAdminKey = "kga_0123456789abcdefghijABCDEFGHIJ4ZiJiO"

// Guarantee: the secret key in base64, with or without padding and a line end, and a first key are
// read from the environment, and nothing that prints the settings shows them (contract, section 1).
func TestSecretsAreReadAndNotShown(t *testing.T) {
	key := strings.Repeat("k\xff", 16)
	padded := base64.StdEncoding.EncodeToString([]byte(key))
	for _, text := range []string{padded, strings.TrimRight(padded, "="), padded + "\n"} {
		c, err := load(t, nil, map[string]string{config.SecretKeyVariable: text, config.AdminKeyVariable: validAdminKey}, "")
		if err != nil {
			t.Fatal(err)
		}
		if string(c.SecretKey) != key || string(c.AdminKey) != validAdminKey {
			t.Errorf("got the keys %q and %q, want %q and %q", string(c.SecretKey), string(c.AdminKey), key, validAdminKey)
		}
		encoded, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, shown := range []string{fmt.Sprint(c), fmt.Sprintf("%+v", *c), fmt.Sprintf("%#v", *c), string(encoded), fmt.Sprint(c.Values())} {
			if strings.Contains(shown, "kkkk") || strings.Contains(shown, "k\xffk") || strings.Contains(shown, padded[:10]) || strings.Contains(shown, validAdminKey[:12]) {
				t.Errorf("the settings are shown as %s, want no key in it", shown)
			}
		}
	}
}

// Guarantee: a variable that does not hold a valid key is an error that names the variable and what
// to write, and not the value (contract, section 1).
func TestInvalidSecretIsRefusedWithoutItsValue(t *testing.T) {
	encode := base64.StdEncoding.EncodeToString
	for name, tc := range map[string]struct{ variable, value, want string }{
		"not base64":          {config.SecretKeyVariable, "not*base64*not*base64*not*base64", "32 bytes in base64"},
		"too short":           {config.SecretKeyVariable, encode([]byte(strings.Repeat("s", 31))), "32 bytes in base64"},
		"too long":            {config.SecretKeyVariable, encode([]byte(strings.Repeat("s", 33))), "32 bytes in base64"},
		"wrong checksum":      {config.AdminKeyVariable, validAdminKey[:len(validAdminKey)-1] + "V", "checksum"},
		"a gateway-level key": {config.AdminKeyVariable, "kg_" + validAdminKey[4:], "account-level"},
		"no key":              {config.AdminKeyVariable, "secret", "kga_"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, nil, map[string]string{tc.variable: tc.value}, "")
			if err == nil || !strings.Contains(err.Error(), tc.variable) || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got the error %v, want one with %s and %q", err, tc.variable, tc.want)
			}
			if strings.Contains(err.Error(), tc.value) {
				t.Errorf("the error %q has the value", err)
			}
		})
	}
}
