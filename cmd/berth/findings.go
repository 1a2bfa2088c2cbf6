package main

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"berth/cmd/internal/cli"
	"berth/reconciler/report"
	"berth/schema"
	"berth/schema/estate"
)

// findingForms are the output forms of findings.
func findingForms() []string { return []string{"text", "json", "sarif", "github", "junit"} }

// validation is the output of `berth validate`; its JSON is a contract.
type validation struct {
	Format      string              `json:"format"`
	Diagnostics []schema.Diagnostic `json:"diagnostics"`
	Summary     struct {
		Documents int `json:"documents"`
		Errors    int `json:"errors"`
		Warnings  int `json:"warnings"`
		// Waiting documents are valid but reference an invalid one.
		Waiting int `json:"waiting"`
	} `json:"summary"`

	prefix  string            // of the estate, from the working directory
	tenants map[string]string // directories of tenants' own repositories, by tenant
	// shadowed are the files of the platform's repository that are replaced by files of
	// those directories, sorted.
	shadowed []string
}

func (v *validation) write(w io.Writer, form string) error {
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
func (v *validation) text(w io.Writer) error {
	for _, d := range v.Diagnostics {
		if _, err := fmt.Fprintln(w, cli.Colored(w, cli.Visible(d.String()))); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, v.summary())
	return err
}

func (v *validation) summary() string {
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
func (v *validation) github(w io.Writer) error {
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
func (v *validation) junit(w io.Writer) error {
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

// file is the path of a finding's file, from the working directory.
func (v *validation) file(d schema.Diagnostic) string {
	rest, below := strings.CutPrefix(d.File, "tenants/")
	name, in, _ := strings.Cut(rest, "/")
	if dir, own := v.tenants[name]; below && own && in != "tenant.yaml" && !v.shadow(d) {
		return path.Join(dir, in)
	}
	return path.Join(v.prefix, d.File)
}

// shadow reports whether a finding is about a file that another one replaces.
func (v *validation) shadow(d schema.Diagnostic) bool {
	_, ok := slices.BinarySearch(v.shadowed, d.File)
	return ok && d.Code == estate.CodeShadowed
}

// The parts of SARIF 2.1.0 that code scanning reads.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool     `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name  string      `json:"name"`
		Rules []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID string `json:"id"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		Level     string          `json:"level"`
		Message   sarifMessage    `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifMessage struct {
		Text string `json:"text"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   sarifRegion   `json:"region"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn"`
	}
)

func (v *validation) sarif() sarifLog {
	run := sarifRun{Tool: sarifTool{sarifDriver{Name: "berth", Rules: []sarifRule{}}}, Results: []sarifResult{}}
	for _, d := range v.Diagnostics {
		if rule := (sarifRule{d.Code}); !slices.Contains(run.Tool.Driver.Rules, rule) {
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, rule)
		}
		run.Results = append(run.Results, sarifResult{
			RuleID: d.Code, Level: string(d.Severity), Message: sarifMessage{d.Message},
			Locations: []sarifLocation{{sarifPhysical{sarifArtifact{v.file(d)}, sarifRegion{max(d.Line, 1), max(d.Column, 1)}}}},
		})
	}
	slices.SortFunc(run.Tool.Driver.Rules, func(a, b sarifRule) int { return strings.Compare(a.ID, b.ID) })
	return sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}}
}
