package slurm

import (
	"fmt"
	"strings"

	"berth/runtimes/slurm/profile"
)

// Reference implements runtimes.Backend: it returns the page of parameters, their classes
// and the versions, from the table of parameters.
func (Backend) Reference() []byte {
	var b strings.Builder
	b.WriteString("# Parameters of Slurm\n\n" +
		"The parameters that Berth writes to slurm.conf and slurmdbd.conf, and what a change of each does on a running cluster.\n" +
		"This page is generated: `berth docs slurm` prints it. Berth runs Slurm " + strings.Join(profile.Series(), ", ") + ".\n\n" +
		"| Class | Effect on a running cluster |\n|---|---|\n" +
		"| reconfigure | `scontrol reconfigure`; from 24.11 on, slurmctld and slurmd start anew with it |\n" +
		"| restart of slurmctld | no scheduling for some seconds; then a reconfigure |\n" +
		"| restart of all | restart of slurmctld and reconfigure, then a restart of slurmd on each worker |\n" +
		"| not known | the release ends with an error if a file has the parameter |\n\n" +
		"Running jobs go on through each of them. A class marked *tried* was tried by a test on a live cluster of that release: " +
		"the parameter was changed, the class was applied, `scontrol show config` had the new value, and a running job went on. The " +
		"other " +
		"classes are those of Slurm's manual pages, and were not tried.\n")
	section := func(title, text string, rows []profile.Parameter, has func(profile.Parameter) bool) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| Parameter | Meaning | Value | Field |", title, text)
		for _, s := range profile.Series() {
			fmt.Fprintf(&b, " %s |", s)
		}
		b.WriteString("\n|---|---|---|---|" + strings.Repeat("---|", len(profile.Series())) + "\n")
		for _, p := range rows {
			if has(p) {
				writeRow(&b, p)
			}
		}
	}
	stack := profile.Stack{Cluster: "CLUSTER"}
	isOption := func(p profile.Parameter) bool { return strings.HasPrefix(p.Field, profile.OptionsField+".") }
	section("Parameters from fields",
		"Fields of an instance's `config`, or of a version's `manifest.parameters`, set these parameters. "+
			"[slurm-config.md](slurm-config.md) has all fields with defaults and examples.",
		stack.SlurmConf(), func(p profile.Parameter) bool { return p.Field != "" && !isOption(p) })
	section("Options", "`config.options` sets these parameters by name. Berth refuses any other.", profile.Options(), isOption)
	section("Parameters that Berth sets", "No field sets these parameters.",
		stack.SlurmConf(), func(p profile.Parameter) bool { return p.Field == "" })
	b.WriteString("\n## slurmdbd.conf\n\nEach change restarts slurmdbd. slurmctld keeps the records meanwhile. " +
		"A test changed the parameters of fields on live clusters of the releases in the last column. The others never change, and a " +
		"change was not tried.\n\n" +
		"| Parameter | Meaning | Value | Field | Tried |\n|---|---|---|---|---|\n")
	for _, p := range stack.SlurmdbdConf() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", p.Name, p.Meaning, valuesOf(p), code(p.Field),
			strings.ReplaceAll(p.Tried, " ", ", "))
	}
	return []byte(b.String())
}

func writeRow(b *strings.Builder, p profile.Parameter) {
	fmt.Fprintf(b, "| %s | %s | %s | %s |", p.Name, p.Meaning, valuesOf(p), code(p.Field))
	for i, s := range profile.Series() {
		tried := ""
		if strings.Contains(p.Tried, s) {
			tried = ", *tried*"
		}
		fmt.Fprintf(b, " %s%s |", p.Classes[i], tried)
	}
	b.WriteString("\n")
}

// valuesOf describes the values of a parameter in a cell of a table.
func valuesOf(p profile.Parameter) string {
	switch v := p.Allowed; {
	case p.Value != "":
		return code(p.Value)
	case v.IsNumber() || v.List || len(v.Words) > 0:
		return strings.ReplaceAll(v.String(), "|", `\|`)
	case v.Form == "":
		return "set by hand"
	}
	return "text"
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
