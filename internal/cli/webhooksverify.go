package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/client"
)

type webhooksVerify struct {
	*app
	payload, headersFile, secretFile string
	headers                          []string
	maxAge                           time.Duration
}

func newWebhooksVerify(a *app) *cobra.Command {
	o := &webhooksVerify{app: a}
	c := &cobra.Command{
		Use:   "verify PAYLOAD_FILE",
		Short: "Check the signatures of a delivery that you received",
		Long: `Check the signatures of a delivery that you received: X-Service-Signature, and
webhook-signature with webhook-id and webhook-timestamp, whichever of the two are
there. No server is asked. The signing secret is read from --secret-file, else
from a prompt or standard input. The exit status is 1 if a signature does not
hold, or if there is none.`,
		Example: `  keygate webhooks verify body.json --header "X-Service-Signature: sha256=…" --secret-file secret.txt
  keygate webhooks verify body.json --headers-file headers.txt < secret.txt`,
		Args: atMost(1),
		RunE: o.run,
	}
	f := c.Flags()
	f.StringVar(&o.payload, "payload", "", "`file` with the body as it was received, byte for byte; also the first argument")
	f.StringArrayVarP(&o.headers, "header", "H", nil, "header `field` of the delivery, as NAME: VALUE; give it again for more")
	f.StringVar(&o.headersFile, "headers-file", "", "`file` with the header fields, one a line; other lines in it are passed over")
	f.StringVar(&o.secretFile, "secret-file", "", "`file` with the signing secret")
	f.DurationVar(&o.maxAge, "max-age", 0, "refuse a webhook-timestamp further from now than this `duration`; 0 takes any")
	return c
}

// verification is what verify prints.
type verification struct {
	Valid  bool   `json:"valid"`
	Reason string `json:"reason,omitempty"`
}

func (o *webhooksVerify) run(c *cobra.Command, args []string) error {
	if err := noneEmpty(c); err != nil {
		return err
	}
	file, err := idOf("payload", o.payload, args)
	if err != nil {
		return usagef("which file holds the body? Give it as the argument, or with --payload.")
	}
	if o.secretFile == "" && file == "-" || o.secretFile == "-" && file == "-" {
		return usagef("standard input can hold the body or the secret: give the other in a file")
	}
	header, err := o.readHeaders()
	if err != nil {
		return err
	}
	payload, err := o.readInput(file)
	if err != nil {
		return fmt.Errorf("read the body: %w", err)
	}
	secret, err := o.secret()
	if err != nil {
		return err
	}
	invalid := client.VerifyDelivery(secret, header, payload, time.Now(), o.maxAge)
	result := verification{Valid: invalid == nil}
	if invalid != nil {
		result.Reason = invalid.Error()
	}
	err = o.printRecord(result, func() []field {
		fields := []field{{"VALID", fmt.Sprint(result.Valid)}}
		if result.Reason != "" {
			fields = append(fields, field{"REASON", result.Reason})
		}
		return fields
	})
	if err != nil || invalid == nil {
		return err
	}
	return fmt.Errorf("the delivery is not to be believed: %w%s", invalid, o.hint(secret, header, payload))
}

// hint finds what most often spoils a body on its way into a file.
func (o *webhooksVerify) hint(secret string, header http.Header, payload []byte) string {
	trimmed := bytes.TrimRight(payload, "\r\n")
	if !bytes.Equal(trimmed, payload) && client.VerifyDelivery(secret, header, trimmed, time.Now(), o.maxAge) == nil {
		return "; it holds for the body without the line end at the end of the file"
	}
	return ""
}

// secret reads the signing secret from its file, else as a line that is not
// shown if it is typed. Only the line's end is not part of it.
func (o *webhooksVerify) secret() (string, error) {
	if o.secretFile != "" {
		return o.readSigningSecret(o.secretFile)
	}
	line, err := o.readLine("Signing secret: ")
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the signing secret: %w", err)
	}
	secret := strings.TrimRight(line, "\r\n")
	if secret == "" {
		return "", usagef("no signing secret was given: type it at the prompt, send it to standard input, or name a --secret-file")
	}
	return secret, nil
}

// readHeaders reads the fields of --headers-file and --header; the latter come
// before the former.
func (o *webhooksVerify) readHeaders() (http.Header, error) {
	header := http.Header{}
	for _, h := range o.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, usagef("--header %q must have the form NAME: VALUE", h)
		}
		header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if o.headersFile == "" {
		if len(header) == 0 {
			return nil, usagef("which signatures? Give the header fields of the delivery with --header or --headers-file.")
		}
		return header, nil
	}
	content, err := o.readInput(o.headersFile)
	if err != nil {
		return nil, fmt.Errorf("read the header fields: %w", err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		name, value, ok := strings.Cut(strings.TrimLeft(lines.Text(), "<> "), ":") // as curl -v shows them
		if name = strings.TrimSpace(name); ok && header.Get(name) == "" {
			header.Set(name, strings.TrimSpace(value))
		}
	}
	return header, nil
}
