// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/canon"
	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/drill"
	"github.com/treaty-node/treaty/node/httpapi"
	"github.com/treaty-node/treaty/node/ledger/evidence"
)

const maxVerify = evidence.MaxBytes

// report is what verify found, whatever it was given.
type report struct {
	Kind   string           `json:"kind"`
	OK     bool             `json:"ok"`
	About  string           `json:"about,omitempty"`
	Checks []evidence.Check `json:"checks"`
}

func (r *report) check(name string, err error, detail string) {
	c := evidence.Check{Name: name, Status: evidence.OK, Detail: detail}
	if err != nil {
		c.Status, c.Detail, r.OK = evidence.Failed, err.Error(), false
	}
	r.Checks = append(r.Checks, c)
}

func (r *report) firstProblem() string {
	for _, c := range r.Checks {
		if c.Status != evidence.OK {
			return c.Name + ": " + c.Detail
		}
	}
	return ""
}

func (c *cli) verifyCmd() *cobra.Command {
	var with []string
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Check a DID document, contract, receipt, statement, drill report or evidence bundle, offline",
		Long: "Check a file offline, by what it is: a DID document (binding and proof), an evidence bundle or a drill report (everything in it), and, with\n" +
			"--document for the parties' DID documents, a contract, a receipt, a revocation, a deletion statement or an acknowledgement. Exit code 6 when something does not hold.",
		Example: "  treaty verify evidence.json\n  treaty verify did.json\n  treaty verify contract.json --document buyer-did.json --document vendor-did.json",
		Args:    cobra.ExactArgs(1),
		RunE: verb(func(_ *cobra.Command, args []string) error {
			data, err := readBounded(args[0])
			if err != nil {
				return usage("%v", err)
			}
			var docs []*did.Document
			for _, path := range with {
				raw, err := readBounded(path)
				if err != nil {
					return usage("--document: %v", err)
				}
				doc, err := did.ParseDocument(raw)
				if err == nil {
					_, err = doc.Verify(time.Now())
				}
				if err != nil {
					return &httpapi.Error{Kind: httpapi.KindVerification, Message: path + ": " + err.Error()}
				}
				docs = append(docs, doc)
			}
			r, err := verifyData(data, docs...)
			if err != nil {
				return err
			}
			if err := c.print(r, func(w io.Writer) {
				fmt.Fprintf(w, "%s %s\n", line(r.Kind), line(r.About))
				for _, k := range r.Checks {
					fmt.Fprintf(w, "  %-6s  %s", k.Status, k.Name)
					if k.Detail != "" {
						fmt.Fprintf(w, ": %s", line(k.Detail))
					}
					fmt.Fprintln(w)
				}
			}); err != nil {
				return err
			}
			if !r.OK {
				return &httpapi.Error{Kind: httpapi.KindVerification, Message: args[0] + " does not hold: " + r.firstProblem()}
			}
			return nil
		}),
	}
	cmd.Flags().StringArrayVar(&with, "document", nil, "DID document to check signatures with; repeatable")
	return cmd
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the caller names it
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxVerify+1))
	if err == nil && len(data) > maxVerify {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxVerify)
	}
	return data, err
}

// verifyData recognises what data is by its exact type, and checks it.
func verifyData(data []byte, docs ...*did.Document) (*report, error) {
	if err := canon.Check(data, canon.Limits{MaxBytes: maxVerify}); err != nil {
		return nil, &httpapi.Error{Kind: httpapi.KindVerification, Message: err.Error()}
	}
	var probe struct {
		Type string `json:"type"`
		ID   string `json:"id"`
	}
	if err := json.Unmarshal(data, &probe); err != nil {
		return nil, usage("not a JSON object: %v", err)
	}
	of := func(id string) *did.Document {
		for _, d := range docs {
			if d.ID().String() == id {
				return d
			}
		}
		return nil
	}
	r := &report{Kind: probe.Type, OK: true, Checks: []evidence.Check{}}
	switch probe.Type {
	case evidence.Type:
		return verifyBundle(data, r, docs...)
	case drill.ReportType:
		return verifyDrill(data, r)
	case contract.DocumentType:
		k, err := contract.Parse(data)
		r.check("form", err, "")
		if err != nil {
			return r, nil
		}
		r.About = k.ID
		r.check("proofs", k.VerifyProofs(of(k.Parties.Buyer), of(k.Parties.Vendor)), "the buyer's, then the vendor's, by their binding keys")
	case contract.ReceiptType:
		k, err := contract.ParseReceipt(data)
		r.check("form", err, "")
		if err != nil {
			return r, nil
		}
		r.About = k.ID
		r.check("signature", k.Verify(of(k.DataPlane)), "by "+k.DataPlane)
	case contract.RevocationType:
		k, err := contract.ParseRevocation(data)
		r.check("form", err, "")
		if err != nil {
			return r, nil
		}
		r.About = fmt.Sprintf("%s, revoked by %s at %s: %s", k.ContractID, k.By, k.RevokedAt, contract.Echo(k.Reason))
		r.check("signature", k.VerifySignature(of(k.By)), "by its binding key; an evidence bundle shows that it is a party")
	case contract.DeletionType:
		k, err := contract.ParseDeletion(data)
		r.check("form", err, "")
		if err != nil {
			return r, nil
		}
		r.About = fmt.Sprintf("%s, %d results deleted by %s at %s", k.ContractID, len(k.Deleted), k.By, k.DeletedAt)
		r.check("signature", k.VerifySignature(of(k.By)), "by its binding key; an evidence bundle shows that it is the buyer")
	case contract.AcknowledgementType:
		k, err := contract.ParseAcknowledgement(data)
		r.check("form", err, "")
		if err != nil {
			return r, nil
		}
		r.About = fmt.Sprintf("%s, %s by %s at %s", k.ContractID, k.Outcome, k.By, k.At)
		r.check("signature", k.Verify(k.ContractID, k.Statement, of(k.By)), "by its binding key, about statement "+k.Statement.String())
	case "":
		if probe.ID == "" {
			return nil, usage("this is nothing that can be verified: it has neither a type nor an id")
		}
		return verifyDocument(data, r)
	default:
		return nil, usage("files of type %q cannot be verified by themselves; an evidence bundle shows them in context", probe.Type)
	}
	return r, nil
}

func verifyBundle(data []byte, r *report, docs ...*did.Document) (*report, error) {
	found, err := evidence.VerifyBundle(data, docs...)
	if err != nil {
		return nil, &httpapi.Error{Kind: httpapi.KindVerification, Message: err.Error()}
	}
	r.About = fmt.Sprintf("contract %s between %s and %s, %d messages, %d disclosed, compiled by %s", found.Contract, found.Buyer, found.Vendor, found.Messages, found.Disclosed, found.Node)
	r.OK, r.Checks = found.OK(), found.Checks
	return r, nil
}

func verifyDocument(data []byte, r *report) (*report, error) {
	r.Kind = "DID document"
	doc, err := did.ParseDocument(data)
	r.check("form", err, "")
	if err != nil {
		return r, nil
	}
	r.About = doc.ID().String()
	v, err := doc.Verify(time.Now())
	r.check("binding and proof", err, fmt.Sprintf("profile %s, dialect %s, by %s", v.Profile, v.Dialect, v.ProofKeyID))
	r.check("key roles", doc.CheckRoles(), "no key serves two roles")
	return r, nil
}
