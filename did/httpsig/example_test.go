// SPDX-License-Identifier: Apache-2.0

package httpsig_test

import (
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/treaty-node/treaty/did"
	"github.com/treaty-node/treaty/did/httpsig"
)

// A service that answers only callers it can name.
func ExampleVerifier_Middleware() {
	var resolver httpsig.Resolver // such as package resolver's

	verifier, err := httpsig.NewVerifier(httpsig.Options{
		Origins:   []string{"https://vendorcorp.example"},
		Resolver:  resolver,
		Nonces:    httpsig.NewMemoryNonces(httpsig.MemoryNonceOptions{}),
		NotBefore: time.Now(), // the nonces are lost with the process
		Admit: func(id did.DID) error {
			if id.Host() != "buyercorp.example" {
				return fmt.Errorf("%s is not on the list", id)
			}
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/orders", verifier.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, _ := httpsig.CallerFrom(r.Context())
		fmt.Fprintln(w, "hello", caller.DID)
	})))
}

// A client whose requests are all signed. It can be handed to any library that
// takes an http.Client.
func ExampleTransport() {
	var signer did.Signer // by the authentication key of our DID document

	client := &http.Client{Transport: &httpsig.Transport{
		Base:   http.DefaultTransport, // in a node: the guarded transport
		Signer: func() did.Signer { return signer },
	}}
	_ = client
}
