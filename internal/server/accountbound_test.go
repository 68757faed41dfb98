package server_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/keygatetest"
)

// Guarantee: --account-config-max-bytes is what the configuration of an account may take: a gateway beyond it is refused with
// 409, which names the setting, and the same gateways fit where the setting is larger.
func TestConfigurationBoundIsASetting(t *testing.T) {
	const gateways = 50 // with 20 kB of cors each
	origins := make([]string, 100)
	for i := range origins {
		origins[i] = fmt.Sprintf("https://%s.%02d.example.com", strings.TrimSuffix(strings.Repeat(strings.Repeat("o", 60)+".", 3), "."), i)
	}
	for size, status := range map[string]int{"1MB": http.StatusConflict, "4MB": http.StatusCreated} {
		t.Run(size, func(t *testing.T) {
			s := keygatetest.Start(t, "--account-config-max-bytes", size)
			for i := range gateways {
				_, err := s.Admin.CreateGateway(t.Context(), client.CreateGatewayRequest{
					Name: fmt.Sprint("g", i), UpstreamURL: "http://127.0.0.1:9", Cors: &client.CorsInput{Origins: origins},
				})
				if err == nil {
					continue
				}
				var refused *client.Error
				if !errors.As(err, &refused) || refused.Status != status || !strings.Contains(refused.Message, "--account-config-max-bytes") {
					t.Fatalf("gateway %d: got %v, want %d", i, err, status)
				}
				return
			}
			if status != http.StatusCreated {
				t.Errorf("%d gateways were created, want %d for one of them", gateways, status)
			}
		})
	}
}
