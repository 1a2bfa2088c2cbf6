// Package secret reads the secrets that a configuration names and never contains.
//
// It must not know the purpose of a secret, nor the configuration that names it.
package secret

import (
	"fmt"
	"os"
	"strings"
)

// Ref names the file or the environment variable of a secret. One of the two is set.
// Copies are independent; a nil Ref names no secret.
type Ref struct {
	File string `json:"file,omitempty"`
	Env  string `json:"env,omitempty"`
}

// Place names the file or the environment variable, for messages.
func (r *Ref) Place() string {
	if r.File != "" {
		return r.File
	}
	return "the environment variable " + r.Env
}

// Read returns the current secret, so that a rotated secret takes effect, without
// the line end that editors add; "" for a nil Ref. The error says why the secret cannot
// be read, or that it is empty. It does not quote the secret.
func (r *Ref) Read() (string, error) {
	if r == nil {
		return "", nil
	}
	var value string
	var isSet bool
	if r.File != "" {
		data, err := os.ReadFile(r.File)
		if err != nil {
			return "", fmt.Errorf("secret: %w", err)
		}
		value = strings.TrimRight(string(data), "\r\n")
	} else if value, isSet = os.LookupEnv(r.Env); !isSet {
		return "", fmt.Errorf("the environment variable %s, which holds the secret, is not set here", r.Env)
	}
	if value == "" {
		return "", fmt.Errorf("the secret in %s%s is empty", r.File, r.Env)
	}
	return value, nil
}
