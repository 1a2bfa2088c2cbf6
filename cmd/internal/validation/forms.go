package validation

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"berth/cmd/internal/cli"
	"berth/reconciler/report"
	"berth/schema"
)

// Forms are the output forms of findings.
func Forms() []string { return []string{"text", "json", "sarif", "github", "junit"} }

// Write writes the findings in a form.
func (v *Validation) Write(w io.Writer, form string) error {
	switch form {
	case "json":
		return cli.WriteJSON(w, v)
	case "sarif":
		return cli.WriteJSON(w, v.sarif())
	case "github":
		return v.github(w)
	case "junit":
		return v.junit(w)
	}
	return v.text(w)
}

// text prints exactly one line for each finding, also for hostile file names: another
// line could be a command to the workflow that runs it.
func (v *Validation) text(w io.Writer) error {
	for _, d := range v.Diagnostics {
		if _, err := fmt.Fprintln(w, cli.Colored(w, cli.Visible(d.String()))); err != nil {
			return err
		}
	}
	if len(v.skipped) > 0 {
		if _, err := fmt.Fprintf(w, "not checked, as it is outside platform/ and tenants/: %s\n",
			cli.Visible(strings.Join(v.skipped, ", "))); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, v.summary())
	return err
}

func (v *Validation) summary() string {
	s := v.Summary
	if s.Errors+s.Warnings == 0 {
		return fmt.Sprintf("%s, all valid", cli.Count(s.Documents, "document"))
	}
	text := fmt.Sprintf("%s, %s in %s", cli.Count(s.Errors, "error"), cli.Count(s.Warnings, "warning"), cli.Count(s.Documents, "document"))
	if s.Waiting > 0 {
		text += fmt.Sprintf("; %s waiting for an invalid document", cli.Count(s.Waiting, "document"))
	}
	return text
}

// github prints workflow commands, which GitHub Actions turns into annotations. Their
// paths start at the repository's root, where a workflow runs.
func (v *Validation) github(w io.Writer) error {
	message := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	for _, d := range v.Diagnostics {
		level := string(d.Severity)
		if d.Severity == schema.SeverityNote {
			level = "notice"
		}
		line := fmt.Sprintf("::%s file=%s,line=%d,col=%d,title=%s::%s", level,
			property.Replace(v.file(d)), d.Line, d.Column, property.Replace(d.Code), message.Replace(d.Message))
		if _, err := fmt.Fprintln(w, cli.Visible(line)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, v.summary())
	return err
}

// junit prints JUnit's XML, which other CI systems show.
func (v *Validation) junit(w io.Writer) error {
	found := slices.Clone(v.Diagnostics)
	for i := range found {
		found[i].File = v.file(found[i])
	}
	text, err := report.JUnit(found, v.Summary.Documents)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}
