"""Does a policy gradient in a run's worlds make a tuned model better?"""
