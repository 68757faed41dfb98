// Package docs embeds the documentation, so that the binary has it without a network. Package manual reads it.
package docs

import "embed"

// Pages are the files of this directory in Markdown.
//
//go:embed *.md
var Pages embed.FS
