// Names the conformance tester of HTTP/2, so that its version and those of what it needs are fixed by go.sum.

//go:build tools

package h2spec

import _ "github.com/summerwind/h2spec/cmd/h2spec"
