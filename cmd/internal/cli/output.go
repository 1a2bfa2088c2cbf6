package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// OutputFlag adds -o to a command. The first form is the default. Another form is
// a usage error, and the shell completes the forms.
func OutputFlag(cmd *cobra.Command, form *string, forms ...string) {
	*form = forms[0]
	cmd.Flags().VarP(&outputForm{form, forms}, "output", "o", "output `form`: "+strings.Join(forms, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// outputForm is the value of a -o flag.
type outputForm struct {
	form  *string
	forms []string
}

func (o *outputForm) String() string {
	if o.form == nil { // pflag asks the zero value
		return ""
	}
	return *o.form
}

func (o *outputForm) Type() string { return "form" }

func (o *outputForm) Set(form string) error {
	if !slices.Contains(o.forms, form) {
		return fmt.Errorf("choose one of %s", strings.Join(o.forms, ", "))
	}
	*o.form = form
	return nil
}

// WriteJSON writes v with indentation, and with <, > and & as they are.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
