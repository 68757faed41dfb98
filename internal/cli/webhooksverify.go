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
	"github.com/keygate/keygate/internal/cli/terminal"
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
		Short: "Verify the signatures of a delivery offline",
		Long: `Verify the signatures of a delivery that you received: X-Service-Signature, and
webhook-signature with webhook-id and webhook-timestamp. At least one of them must be
there, and all that are there must be valid. No server is called. The signing secret
is read from --secret-file, else from a prompt or standard input. The exit status is
1 if a signature is invalid or if there is none.`,
		Example: `  keygate webhooks verify body.json --header "X-Service-Signature: sha256=…" --secret-file secret.txt
  keygate webhooks verify body.json --headers-file headers.txt < secret.txt`,
		Args: atMost(1),
		RunE: o.run,
	}
	f := c.Flags()
	f.StringVar(&o.payload, "payload", "", "`file` with the body exactly as received"+alsoArgument)
	f.StringArrayVarP(&o.headers, "header", "H", nil, "`header` of the delivery, as NAME: VALUE; may be repeated")
	f.StringVar(&o.headersFile, "headers-file", "", "`file` with the headers, one per line; other lines are ignored")
	f.StringVar(&o.secretFile, "secret-file", "", "`file` with the signing secret")
	f.DurationVar(&o.maxAge, "max-age", 0, "refuse a webhook-timestamp further from now than this `duration`; 0 accepts any")
	return c
}

// verification is the output of verify.
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
		return usagef("no file given: give the file with the body as the argument or with --payload")
	}
	if o.secretFile == "" && file == "-" || o.secretFile == "-" && file == "-" {
		return usagef("the body and the secret cannot both come from standard input: give one of them in a file")
	}
	header, err := o.readHeaders()
	if err != nil {
		return err
	}
	payload, err := o.ReadInput(file)
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
	err = o.PrintRecord(result, func() []terminal.Field {
		fields := []terminal.Field{{"VALID", fmt.Sprint(result.Valid)}}
		if result.Reason != "" {
			fields = append(fields, terminal.Field{"REASON", result.Reason})
		}
		return fields
	})
	if err != nil || invalid == nil {
		return err
	}
	return fmt.Errorf("the delivery is not valid: %w%s", invalid, o.hint(secret, header, payload))
}

// hint detects the most common mistake: an editor added a line end to the body.
func (o *webhooksVerify) hint(secret string, header http.Header, payload []byte) string {
	trimmed := bytes.TrimRight(payload, "\r\n")
	if !bytes.Equal(trimmed, payload) && client.VerifyDelivery(secret, header, trimmed, time.Now(), o.maxAge) == nil {
		return "; it is valid for the body without the line end at the end of the file"
	}
	return ""
}

// secret reads the signing secret from its file, else as one line, without echo if
// it is typed. The line end is not part of it; other white space is.
func (o *webhooksVerify) secret() (string, error) {
	if o.secretFile != "" {
		return o.readSigningSecret(o.secretFile)
	}
	line, err := o.ReadLine("Signing secret: ")
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the signing secret: %w", err)
	}
	secret := strings.TrimRight(line, "\r\n")
	if secret == "" {
		return "", usagef("no signing secret was given: type it at the prompt, pass it on standard input, or give --secret-file")
	}
	return secret, nil
}

// readHeaders returns the headers given by --header and --headers-file. --header
// takes precedence.
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
			return nil, usagef("no signatures given: give the headers of the delivery with --header or --headers-file")
		}
		return header, nil
	}
	content, err := o.ReadInput(o.headersFile)
	if err != nil {
		return nil, fmt.Errorf("read the headers: %w", err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		name, value, ok := strings.Cut(strings.TrimLeft(lines.Text(), "<> "), ":") // as curl -v shows them
		if name = strings.TrimSpace(name); ok && header.Get(name) == "" {
			header.Set(name, strings.TrimSpace(value))
		}
	}
	return header, nil
}
